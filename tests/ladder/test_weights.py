"""weights.py: a model on disk is one that transformers opens, and back."""

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


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("cut", "no model in .* \\(Error while deserializing header"),
        ("another kind", "has model_type='llama' in config.json, GPT-2 here 'gpt2'"),
        ("another size", "the model to start from has .*'n_layer': 2"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_in_a_line(trouble, said, tmp_path):
    saved_model(tmp_path)
    config = tmp_path / "best" / "config.json"
    tensors = tmp_path / "best" / "model.safetensors"
    if trouble == "another kind":
        config.write_text(config.read_text().replace('"gpt2"', '"llama"'))
    if trouble == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    model = DDP.GPT(DDP.GPTConfig(**TINY))
    with pytest.raises(BadInput, match=f"^[^\n]*{said}[^\n]*$"):
        weights.fill(model, *weights.load(str(tmp_path)))
