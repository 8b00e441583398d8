"""Models that others saved: what can be understood is loaded, all else is refused in a line."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
import transformers
from helpers import random_batch
from models import model_of, reference_model
from safetensors.torch import load_file, save_file, save_model

from ladder.commands.main import main as ladder
from ladder.errors import BadInput


@pytest.fixture
def saved(tmp_path):
    """A folder as transformers saves a GPT-2, and its logits."""
    model = reference_model(tied=True).eval()
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        return tmp_path, model, model(random_batch(V=512)[0]).logits


def edit(folder, change):
    """Save the weights again, changed by change(dict)."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file({name: w.contiguous() for name, w in weights.items()}, path, {"format": "pt"})


def configure(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def prefixed(prefix):
    """A change of all names."""

    def change(weights):
        for name in list(weights):
            weights[prefix + name] = weights.pop(name)

    return change


def as_head_alone(weights):
    weights["lm_head.weight"] = weights.pop("transformer.wte.weight")


def as_head_too(weights):
    weights["lm_head.weight"] = weights["transformer.wte.weight"].clone()


def blocks_compiled(weights):
    for name in list(weights):
        weights[re.sub(r"(h\.\d+)\.", r"\1._orig_mod.", name)] = weights.pop(name)


@pytest.mark.parametrize(
    "change",
    [
        as_head_alone,
        as_head_too,
        prefixed("_orig_mod."),
        prefixed("module."),
        prefixed("module._orig_mod."),
        blocks_compiled,
    ],
)
def test_the_same_weights_under_other_names_are_loaded(change, saved):
    folder, _, logits = saved
    edit(folder, change)
    with torch.no_grad():
        found, _ = model_of(folder)(random_batch(V=512)[0])
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-3)


def test_what_save_model_leaves_is_loaded(saved):
    folder, model, logits = saved
    save_model(torch.nn.ModuleDict({"module": model}), folder / "model.safetensors")
    with torch.no_grad():
        found, _ = model_of(folder)(random_batch(V=512)[0])
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-3)


def test_a_model_in_several_files_is_loaded(saved):
    folder, model, logits = saved
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="1MB")
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) > 1
    files[0].with_name("model-00001-of-00002 (copy).safetensors").write_bytes(b"mine")
    with torch.no_grad():
        found, _ = model_of(folder)(random_batch(V=512)[0])
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-3)
    files[0].unlink()
    with pytest.raises(BadInput, match=f"no model in {folder} .*{files[0].name}"):
        model_of(folder)


@pytest.mark.parametrize("n_inner", [512, None])
def test_an_mlp_of_four_times_the_width_may_be_written_out(n_inner, saved):
    configure(saved[0], n_inner=n_inner)
    model_of(saved[0])
    configure(saved[0], n_inner=500)
    with pytest.raises(BadInput, match="has n_inner=500"):
        model_of(saved[0])


def with_score(weights):
    weights["score.weight"] = torch.ones(2, 128)


def without_bias(weights):
    del weights["transformer.h.0.ln_1.bias"], weights["transformer.h.1.ln_1.weight"]


def without_embedding(weights):
    del weights["transformer.wte.weight"]


def untied(weights):
    weights["lm_head.weight"] = weights["transformer.wte.weight"] + 1


def narrow(weights):
    name = "transformer.h.1.mlp.c_fc.weight"
    weights[name] = weights[name][:, :500]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_score, 'is no GPT-2 of .*: Unexpected key.*: "transformer.score.weight"'),
        (without_bias, "Missing key.*: .*h.0.ln_1.bias.*, .*h.1.ln_1.weight"),
        (without_embedding, "has no transformer.wte.weight"),
        (untied, "has a lm_head.weight of its own"),
        (narrow, r"size mismatch for transformer.h.1.mlp.c_fc.weight: .*\[500, 128\]"),
        (prefixed("model.encoder."), "has no transformer.wte.weight"),
    ],
)
def test_names_and_sizes_that_are_wrong_are_named(change, said, saved, capsys):
    edit(saved[0], change)
    with pytest.raises(BadInput, match=f"^[^\n]*{said}[^\n]*$"):
        model_of(saved[0])


def test_another_kind_of_model_is_named(saved):
    transformers.LlamaConfig().save_pretrained(saved[0])
    with pytest.raises(BadInput, match=r"has model_type='llama' in config.json, GPT-2 here 'gpt2'"):
        model_of(saved[0])


def test_a_model_without_safetensors_is_told_how_to_get_them(saved):
    folder, model, _ = saved
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"has no model.safetensors: .*\.save_pretrained writes one"):
        model_of(folder)


@pytest.mark.parametrize(
    ("vocabulary", "status", "said"),
    [
        (5000, 2, "has a vocabulary of 5000, GPT-2's tokens are 50257"),
        (50257, 0, ""),
        (50258, 0, ""),
    ],
)
def test_sample_needs_gpt2s_vocabulary(vocabulary, status, said, tmp_path, monkeypatch, capsys):
    decode = dict(encode=lambda text, **_: [1], decode=lambda ids: "x" * len(ids))
    monkeypatch.setattr("ladder.commands.sample.gpt2_vocabulary", lambda: SimpleNamespace(**decode))
    config = transformers.GPT2Config(vocab_size=vocabulary, n_layer=1, n_head=2, n_embd=16)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    capsys.readouterr()  # its progress
    assert ladder(["sample", str(tmp_path), "--tokens", "3", "--device", "cpu"]) == status
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == status // 2
