"""best/ in other people's tools: GPT-2's tokenizer beside the weights."""

import os
import subprocess
from types import SimpleNamespace

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


@pytest.fixture
def train(run_main, tmp_path, capsys):
    """train(*flags): what ddp_run.py printed as it trained."""
    weights.download_vocabulary.cache_clear()

    def run(*flags):
        folder = f"--ckpt-dir={tmp_path / 'ckpt'}"
        run_main(load(ROOT / "ddp_run.py"), "--no-compile", "--total-batch=128", folder, *flags)
        return capsys.readouterr().out

    return run


def test_transformers_makes_tiktokens_ids(train, tmp_path, monkeypatch):
    """Offline, with what a run saved."""
    try:
        vocabulary = gpt2_vocabulary()
    except UsageError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(cache_folder()))  # tiktoken reads both names
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    assert "no tokenizer" not in train("--steps", 1)
    from transformers import AutoTokenizer

    best = tmp_path / "ckpt" / "best"
    (best / "config.json").write_text('{"n_positions": 2048}')  # of a run of longer sequences
    assert weights.save_tokenizer(best)
    tokenizer = AutoTokenizer.from_pretrained(best)
    assert tokenizer.model_max_length == 2048 and len(tokenizer) == 50257
    for text in HARD:
        ids = tokenizer(text)["input_ids"]
        assert ids == vocabulary.encode_ordinary(text)
        assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == 50256


def test_without_the_vocabulary_training_goes_on(train, tmp_path, monkeypatch):
    """It waits for the network once, and not for long."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    waits = []

    def nothing_answers(command, capture_output, timeout):
        waits.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    offline = SimpleNamespace(run=nothing_answers, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(weights, "subprocess", offline)
    out = train("--steps", 2, "--eval-every", 1)
    assert out.count("note  it has no tokenizer") == out.count("note  the lowest loss") == 2
    assert len(waits) == 1 and waits[0] <= 30
    names = sorted(os.listdir(tmp_path / "ckpt" / "best"))
    assert names == ["config.json", "model.safetensors"]  # a later model may get one
