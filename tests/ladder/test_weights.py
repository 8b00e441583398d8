"""weights.py: a model on disk is one that transformers opens, and back."""

import math

import pytest
import torch
import transformers
from helpers import TINY, load, random_batch
from jobs import command_line
from models import reference_model
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from ladder import checkpoint, weights
from ladder.errors import BadInput
from ladder.files import ROOT

DDP = load(ROOT / "ddp_run.py")


@pytest.fixture(scope="module")
def trained(shard, smaller, tmp_path_factory):
    """The folder of checkpoints of a run of six steps, validated after each two."""
    folder = tmp_path_factory.mktemp("trained")
    DDP.main(command_line(shard, folder, "--eval-every", 2, "--ckpt-every", 2))
    return folder / "ckpt"


def model_of(name, vocab_size=None):
    """The model that ddp_run.py starts with when it is given --init NAME."""
    shape, found = weights.load(str(name))
    padded = shape | {"vocab_size": vocab_size or shape["vocab_size"]}
    model = DDP.GPT(DDP.GPTConfig(**padded))
    weights.fill(model, shape, found)
    return model


def test_transformers_opens_the_best_model(trained):
    """The same logits; and --init takes it back, bit for bit."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(trained / "best")
    ours = model_of(trained)
    x, _ = random_batch(V=256)
    with torch.no_grad():
        logits, _ = ours(x)
        torch.testing.assert_close(theirs(x).logits, logits, rtol=1e-5, atol=1e-5)
    last = checkpoint.read(trained / "step_000006.pt")["model"]
    for name, w in ours.state_dict().items():
        assert torch.equal(w, last[name])


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
def test_weights_that_cannot_be_used_are_refused_in_a_line(trouble, said, trained, tmp_path):
    config = (trained / "best" / "config.json").read_text()
    content = (trained / "best" / "model.safetensors").read_bytes()
    if trouble == "another kind":
        config = config.replace('"gpt2"', '"llama"')
    if trouble == "cut":
        content = content[:-100]
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(content)
    model = DDP.GPT(DDP.GPTConfig(**TINY))
    with pytest.raises(BadInput, match=f"^[^\n]*{said}[^\n]*$"):
        weights.fill(model, *weights.load(str(tmp_path)))
