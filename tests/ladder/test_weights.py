"""weights.py: a model on disk is one that transformers opens, and back."""

import math
import shutil
import sys

import pytest
import torch
import transformers
from helpers import TINY, load, random_batch
from models import model_of, reference_model, saved_model
from torch.nn.functional import cross_entropy

from ladder import weights
from ladder.errors import UsageError
from ladder.files import ROOT

DDP = load(ROOT / "ddp_run.py")


def test_transformers_opens_a_saved_model(tmp_path, monkeypatch):
    """The same logits; and --init takes it back without transformers, bit for bit."""
    model = saved_model(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "best")
    x, _ = random_batch(V=256)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x).logits, model(x), rtol=1e-5, atol=1e-5)
    monkeypatch.setitem(sys.modules, "transformers", None)
    again = model_of(tmp_path).state_dict()
    for name, w in model.state_dict().items():
        assert torch.equal(w, again[name])


def test_a_model_of_another_size_or_that_was_cut_is_refused_in_a_line(tmp_path):
    saved_model(tmp_path)
    tiny = DDP.GPT(DDP.GPTConfig(**TINY))
    with pytest.raises(UsageError, match=r"^the model to start from has .*'n_layer': 2"):
        weights.start_from(tiny, str(tmp_path))
    tensors = tmp_path / "best" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"model.safetensors is damaged \("):
        weights.load(str(tmp_path))
    weights.save(tmp_path, tiny.config, tiny.state_dict(), {"val_loss": "9"})
    shutil.rmtree(tmp_path / "best")
    assert weights.load(str(tmp_path))[0]["vocab_size"] == 50257  # rows of padding are left out


@pytest.fixture
def saved(tmp_path):
    """A GPT-2 of transformers, saved in its `folder`."""
    model = reference_model(tied=True).eval()
    model.save_pretrained(tmp_path, max_shard_size="1MB")  # in several files
    model.folder = tmp_path
    return model


def test_padding_rows_take_next_to_nothing_from_the_others(saved):
    """Also where logits lie far below 0, as those of GPT-2 do. Its own rows give its own logits."""
    x, y = random_batch(V=512)
    with torch.no_grad():
        torch.testing.assert_close(model_of(saved.folder)(x), saved(x).logits, rtol=1e-4, atol=1e-3)
        saved.transformer.wte.weight.add_(0.25)
        saved.transformer.ln_f.bias.sub_(1)
        saved.save_pretrained(saved.folder)
        expected = saved(x).logits
        loss = model_of(saved.folder, vocab_size=512 + 47)(x, y)
    assert expected.mean() < -20
    more = loss - cross_entropy(expected.flatten(0, 1), y.flatten())
    assert -1e-5 < more <= math.log(1 + 47 / 512) + 1e-5


@pytest.mark.parametrize(
    ("key", "other"), [("tie_word_embeddings", False), ("activation_function", "gelu")]
)
def test_a_model_of_another_kind_is_refused(key, other, saved):
    setattr(saved.config, key, other)
    saved.save_pretrained(saved.folder)
    with pytest.raises(UsageError, match=f"has {key}={other!r} in config.json, GPT-2 here"):
        model_of(saved.folder)
