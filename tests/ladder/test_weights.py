"""weights.py: a model on disk is one that transformers opens, and back.

Of what others saved, what can be understood is loaded; all else is refused in a line.
"""

import json
import math

import pytest
import torch
import transformers
from helpers import TINY, load, random_batch
from models import model_of, reference_model, saved_model
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from ladder import weights
from ladder.errors import UsageError
from ladder.files import ROOT

DDP = load(ROOT / "ddp_run.py")


def test_transformers_opens_a_saved_model(tmp_path):
    """The same logits; and --init takes it back, bit for bit."""
    model = saved_model(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "best")
    x, _ = random_batch(V=256)
    with torch.no_grad():
        logits, _ = model(x)
        torch.testing.assert_close(theirs(x).logits, logits, rtol=1e-5, atol=1e-5)
    again = model_of(tmp_path).state_dict()
    for name, w in model.state_dict().items():
        assert torch.equal(w, again[name])


def test_padding_rows_are_left_out(tmp_path):
    model = DDP.GPT(DDP.GPTConfig(**TINY))
    weights.save(tmp_path, model.config, model.state_dict(), {})
    assert weights.load(str(tmp_path))[0]["vocab_size"] == 50257


def test_a_model_of_another_size_or_that_was_cut_is_refused_in_a_line(tmp_path):
    saved_model(tmp_path)
    tiny = DDP.GPT(DDP.GPTConfig(**TINY))
    with pytest.raises(UsageError, match=r"^the model to start from has .*'n_layer': 2"):
        weights.fill(tiny, *weights.load(str(tmp_path)))
    tensors = tmp_path / "best" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"^no model in .* \(Error while deserializing header"):
        weights.load(str(tmp_path))


# ------------------------------------------------------------------ what others saved


@pytest.fixture
def saved(tmp_path):
    """A GPT-2 of transformers, saved in its `folder`."""
    model = reference_model(tied=True).eval()
    model.save_pretrained(tmp_path)
    model.folder = tmp_path
    return model


def test_padding_rows_take_next_to_nothing_from_the_others(saved):
    """Also where logits lie far below 0, as those of GPT-2 do."""
    x, y = random_batch(V=512)
    with torch.no_grad():
        saved.transformer.wte.weight.add_(0.25)
        saved.transformer.ln_f.bias.sub_(1)
        saved.save_pretrained(saved.folder)
        expected = saved(x).logits
        _, loss = model_of(saved.folder, vocab_size=512 + 47)(x, y)
    assert expected.mean() < -20
    more = loss - cross_entropy(expected.flatten(0, 1), y.flatten())
    assert -1e-5 < more <= math.log(1 + 47 / 512) + 1e-5


def assert_loads(theirs):
    """Our model in the folder of theirs gives the same logits."""
    x, _ = random_batch(V=512)
    with torch.no_grad():
        found, _ = model_of(theirs.folder)(x)
        torch.testing.assert_close(found, theirs(x).logits, rtol=1e-4, atol=1e-3)


def edit(folder, change):
    """Save the weights again, changed by change(dict)."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def as_openai(tensors):
    """Names without a prefix, and masks."""
    for name in list(tensors):
        tensors[name.removeprefix("transformer.")] = tensors.pop(name)
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 1024, 1024).tril()


def as_head_too(tensors):
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()


def as_head_alone(tensors):
    """As safetensors' save_model() writes tied weights."""
    tensors["lm_head.weight"] = tensors.pop("transformer.wte.weight")


@pytest.mark.parametrize("change", [as_openai, as_head_too, as_head_alone])
def test_the_same_weights_under_other_names_are_loaded(change, saved):
    edit(saved.folder, change)
    assert_loads(saved)


def test_an_output_head_of_its_own_is_refused(saved):
    def untie(tensors):
        tensors["lm_head.weight"] = -tensors["transformer.wte.weight"]

    edit(saved.folder, untie)
    with pytest.raises(UsageError, match=r"has a lm_head\.weight of its own"):
        model_of(saved.folder)


def test_a_model_in_several_files_is_loaded(saved):
    (saved.folder / "model.safetensors").unlink()
    saved.save_pretrained(saved.folder, max_shard_size="1MB")
    first, _, *_ = sorted(saved.folder.glob("model-*.safetensors"))
    assert_loads(saved)
    first.unlink()
    with pytest.raises(UsageError, match=f"no model in {saved.folder} .*{first.name}"):
        model_of(saved.folder)


def test_a_config_of_another_model_is_refused(saved):
    path = saved.folder / "config.json"
    fields = json.loads(path.read_text())
    for key, value in (("n_inner", 500), ("model_type", "llama")):
        path.write_text(json.dumps(fields | {key: value}))
        with pytest.raises(UsageError, match=f"has {key}={value!r} in config.json, GPT-2 here "):
            model_of(saved.folder)


def test_a_weight_that_is_missing_is_named(saved):
    edit(saved.folder, lambda tensors: tensors.pop("transformer.h.0.ln_1.bias"))
    with pytest.raises(UsageError, match=r"^[^\n]*Missing key.*: .*h.0.ln_1.bias[^\n]*$"):
        model_of(saved.folder)


def test_a_config_without_a_size_has_that_of_gpt2_124m(saved):
    """As transformers reads it."""
    path = saved.folder / "config.json"
    config = json.loads(path.read_text())
    del config["n_layer"]
    path.write_text(json.dumps(config))
    assert weights.load(str(saved.folder))[0]["n_layer"] == 12
