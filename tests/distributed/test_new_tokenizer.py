"""best/ in other people's tools: GPT-2's tokenizer beside the weights."""

import shutil
import subprocess
import time

import pytest
from helpers import SMALLER

from ladder import weights
from ladder.corpus import cached_vocabulary, gpt2_vocabulary
from ladder.errors import BadInput

HARD = [
    "  The sea\n\n\n  \t x",
    "naïve café — 日本語 🤖👩‍👩‍👧 ",
    "don't I'LL we've\r\n",
    "a" * 300 + " 1234567 3.14",
    "\u00a0\u2028 zero\u200bwidth",
    " ",
    "Ġ <|endoftext",
    "".join(map(chr, range(1, 0x500))),
]


@pytest.fixture
def vocabulary():
    try:
        return gpt2_vocabulary()
    except BadInput:
        pytest.skip("GPT-2's vocabulary is not here")


@pytest.fixture(autouse=True)
def tries_again():
    weights.download_vocabulary.cache_clear()
    yield
    weights.download_vocabulary.cache_clear()


def test_transformers_writes_text_and_makes_tiktokens_ids(vocabulary, alone, tmp_path, monkeypatch):
    """Offline, with what a run saved."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    status, out, err = alone("--steps", 1)
    assert status == 0 and "no tokenizer" not in out, err
    from transformers import AutoTokenizer

    best = tmp_path / "ckpt" / "best"
    tokenizer = AutoTokenizer.from_pretrained(best)
    assert tokenizer.model_max_length == 1024 and len(tokenizer) == 50257
    for text in HARD:
        ids = tokenizer(text)["input_ids"]
        assert ids == vocabulary.encode_ordinary(text)
        assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == 50256


def test_the_pipeline_of_transformers_writes_text(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import GPT2Config, GPT2LMHeadModel, pipeline

    sizes = {key: SMALLER[key] for key in ("n_layer", "n_head", "n_embd")}
    GPT2LMHeadModel(GPT2Config(**sizes)).save_pretrained(tmp_path)
    assert weights.save_tokenizer(tmp_path)
    (written,) = pipeline("text-generation", str(tmp_path))("The sea", max_new_tokens=5)
    text = written["generated_text"]
    assert text.startswith("The sea") and text != "The sea"  # as with an empty tokenizer


def test_without_the_vocabulary_training_goes_on(alone, tmp_path, monkeypatch):
    """It waits for the network once, and not for long; a later model gets the tokenizer."""
    empty = tmp_path / "empty"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(empty))
    real = subprocess.run
    waits = []

    def nothing_answers(command, **options):
        if "tiktoken" not in command[-1]:
            return real(command, **options)
        waits.append(options["timeout"])
        return real([command[0], "-c", "import time; time.sleep(60)"], **options | {"timeout": 0.2})

    monkeypatch.setattr(subprocess, "run", nothing_answers)
    start = time.monotonic()
    status, out, _ = alone("--steps", 2, "--eval-every", 1)
    assert status == 0 and time.monotonic() - start < 60
    assert out.count("note  it has no tokenizer") == out.count("note  the lowest loss") == 2
    assert len(waits) == 1 and waits[0] <= 30
    best = tmp_path / "ckpt" / "best"
    assert sorted(path.name for path in best.iterdir()) == ["config.json", "model.safetensors"]
    monkeypatch.undo()
    here = cached_vocabulary()
    if all(path.exists() for path in here):
        empty.mkdir()
        for path in here:
            shutil.copy(path, empty)
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(empty))
        assert weights.save_tokenizer(best) and (best / "vocab.json").exists()
