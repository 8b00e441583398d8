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
from ladder.errors import BadInput
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


def test_a_gpt2_of_transformers_is_started_from(tmp_path):
    """As OpenAI's: names without a prefix, masks, and logits far below 0.

    The padding rows take next to nothing from the others.
    """
    theirs = reference_model(tied=True).eval()
    with torch.no_grad():
        theirs.transformer.wte.weight.add_(0.25)
        theirs.transformer.ln_f.bias.sub_(1)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {"h.0.attn.bias": torch.ones(1, 1, 1024, 1024).tril()}
    for name, w in load_file(path).items():
        tensors[name.removeprefix("transformer.")] = w
    save_file(tensors, path, {"format": "pt"})
    V = theirs.config.vocab_size
    x, y = random_batch(V=V)
    with torch.no_grad():
        expected = theirs(x).logits
        logits, loss = model_of(tmp_path, V + 47)(x, y)
    assert expected.mean() < -20
    torch.testing.assert_close(logits[..., :V], expected, rtol=1e-4, atol=1e-3)
    more = loss - cross_entropy(expected.flatten(0, 1), y.flatten())
    assert -1e-5 < more <= math.log(1 + 47 / V) + 1e-5


def test_a_model_of_another_size_or_that_was_cut_is_refused_in_a_line(tmp_path):
    saved_model(tmp_path)
    tiny = DDP.GPT(DDP.GPTConfig(**TINY))
    with pytest.raises(BadInput, match=r"^the model to start from has .*'n_layer': 2"):
        weights.fill(tiny, *weights.load(str(tmp_path)))
    tensors = tmp_path / "best" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.raises(BadInput, match=r"^no model in .* \(Error while deserializing header"):
        weights.load(str(tmp_path))


# ------------------------------------------------------------------ what others saved


@pytest.fixture
def saved(tmp_path):
    """A folder as transformers saves a GPT-2."""
    model = reference_model(tied=True).eval()
    model.save_pretrained(tmp_path)
    model.folder = tmp_path
    return model


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
    tensors = {name: w.contiguous() for name, w in tensors.items()}
    save_file(tensors, path, {"format": "pt"})


def as_head_too(tensors):
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()


def test_the_tied_matrix_may_be_there_twice(saved):
    edit(saved.folder, as_head_too)
    assert_loads(saved)


def test_a_model_in_several_files_is_loaded(saved):
    (saved.folder / "model.safetensors").unlink()
    saved.save_pretrained(saved.folder, max_shard_size="1MB")
    first, *others = sorted(saved.folder.glob("model-*.safetensors"))
    assert others
    first.with_name("model-00001-of-00002 (copy).safetensors").write_bytes(b"mine")
    assert_loads(saved)
    first.unlink()
    with pytest.raises(BadInput, match=f"no model in {saved.folder} .*{first.name}"):
        model_of(saved.folder)


def test_a_config_of_another_model_is_refused(saved):
    path = saved.folder / "config.json"
    fields = json.loads(path.read_text())
    for key, value in (("n_inner", 500), ("model_type", "llama")):
        path.write_text(json.dumps(fields | {key: value}))
        with pytest.raises(BadInput, match=f"has {key}={value!r} in config.json, GPT-2 here "):
            model_of(saved.folder)


def without_bias(tensors):
    del tensors["transformer.h.0.ln_1.bias"], tensors["transformer.h.1.ln_1.weight"]


def narrow(tensors):
    name = "transformer.h.1.mlp.c_fc.weight"
    tensors[name] = tensors[name][:, :500]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_bias, "Missing key.*: .*h.0.ln_1.bias.*, .*h.1.ln_1.weight"),
        (narrow, r"size mismatch for transformer.h.1.mlp.c_fc.weight: .*\[500, 128\]"),
    ],
)
def test_names_and_sizes_that_are_wrong_are_named(change, said, saved):
    edit(saved.folder, change)
    with pytest.raises(BadInput, match=f"^[^\n]*{said}[^\n]*$"):
        model_of(saved.folder)
