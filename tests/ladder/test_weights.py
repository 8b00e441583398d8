"""weights.py: a model on disk is one that transformers opens, and back."""

import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers
from helpers import TINY, load, random_batch
from models import model_of, reference_model, saved_model
from torch.nn.functional import cross_entropy

from ladder import weights
from ladder.checkout import ROOT
from ladder.corpus import VOCABULARY_FILES, cache_folder
from ladder.errors import UsageError

TRAIN = load(ROOT / "train.py")


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
    tiny = TRAIN.GPT(TRAIN.GPTConfig(**TINY))
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


def test_a_model_of_another_kind_is_refused(saved):
    saved.config.activation_function = "gelu"
    saved.save_pretrained(saved.folder)
    with pytest.raises(UsageError, match="has activation_function='gelu' in"):
        model_of(saved.folder)


# ------------------------------------------------------------------ the tokenizer


HARD = [
    "  The sea\n\n\n  \t x",
    "naïve café — 日本語 🤖👩‍👩‍👧 don't I'LL we've\r\n",
    "\u00a0\u2028 zero\u200bwidth",
    "Ġ <|endoftext",
    "".join(map(chr, range(1, 0x500))),
]


def test_transformers_makes_tiktokens_ids(vocabulary, tmp_path, monkeypatch):
    """Offline, with what a run of longer sequences saves."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(cache_folder()))  # tiktoken reads both names
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    weights.save_tokenizer(tmp_path, 2048)
    from transformers import AutoTokenizer

    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.model_max_length == 2048 and len(tokenizer) == 50257
    for text in HARD:
        ids = tokenizer(text)["input_ids"]
        assert ids == vocabulary.encode_ordinary(text)
        assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == 50256


@pytest.mark.parametrize("spoil", [Path.mkdir, Path.touch])
def test_without_the_vocabulary_training_goes_on(spoil, run_main, tmp_path, monkeypatch):
    """It cannot be read, or was cut."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in VOCABULARY_FILES:
        spoil(tmp_path / name)
    flags = [f"--ckpt-dir={tmp_path / 'ckpt'}", "--no-compile", "--total-batch=128"]
    log = run_main(load(ROOT / "train.py"), *flags, "--steps=2")
    assert log.result["status"] == "ok" and "it has no tokenizer" in "\n".join(log.notes)
