"""best/ in other people's tools: GPT-2's tokenizer beside the weights."""

import os
from unittest.mock import Mock

import pytest
from helpers import load

from ladder import weights
from ladder.corpus import cache_folder, gpt2_vocabulary
from ladder.errors import UsageError
from ladder.files import ROOT

HARD = [
    "  The sea\n\n\n  \t x",
    "naïve café — 日本語 🤖👩‍👩‍👧 ",
    "don't I'LL we've\r\n",
    "a" * 300 + " 1234567 3.14",
    "\u00a0\u2028 zero\u200bwidth",
    "Ġ <|endoftext",
    "".join(map(chr, range(1, 0x500))),
]


def test_transformers_makes_tiktokens_ids(tmp_path, monkeypatch):
    """Offline, with what a run of longer sequences saves."""
    try:
        vocabulary = gpt2_vocabulary()
    except UsageError as error:
        pytest.skip(str(error))
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


def test_without_the_vocabulary_training_goes_on(run_main, tmp_path, monkeypatch):
    """One note says so, however often a model is saved."""
    denied = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(weights, "cached_vocabulary", denied)
    flags = [f"--ckpt-dir={tmp_path / 'ckpt'}", "--no-compile", "--total-batch=128"]
    log = run_main(load(ROOT / "ddp_run.py"), *flags, "--steps=2", "--eval-every=1")
    said = "\n".join(log.notes)
    assert log.result["status"] == "ok" and said.count("the lowest loss") == 2
    assert said.count("it has no tokenizer") == 1
    assert sorted(os.listdir(tmp_path / "ckpt" / "best")) == ["config.json", "model.safetensors"]
