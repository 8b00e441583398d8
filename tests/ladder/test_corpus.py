"""corpus.py: shards, texts, folders of shards, and what is held out."""

import hashlib
import sys
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tiktoken
from helpers import write_shard

from ladder import corpus as data
from ladder.corpus import encode, load_corpus, load_splits
from ladder.errors import UsageError


def shard(path, first, last):
    write_shard(path, np.arange(first, last, dtype=np.uint16))


# ------------------------------------------------------------------ shards


def test_a_shard_has_llm_c_s_layout_and_its_hash_covers_its_size_and_start(tmp_path):
    path = tmp_path / "a.bin"
    tokens = np.tile(np.arange(50_000, dtype=np.uint16), 6)
    write_shard(path, tokens)
    assert np.fromfile(path, "<i4", 4).tolist() == [20240520, 1, 300_000, 0]
    corpus = load_corpus(str(path), print0=print)
    assert np.array_equal(corpus.read(0, 300_000), tokens)
    covered = (300_000).to_bytes(8, "little") + tokens[:262_144].tobytes()
    assert corpus.sha256 == hashlib.sha256(covered).hexdigest()
    # A thousand shards are more files than many systems let a program open.
    assert path not in [file.resolve() for file in Path("/proc/self/fd").glob("*")]


def test_the_default_corpus_ships_and_needs_no_vocabulary(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails
    corpus = load_corpus(None, pytest.fail)
    assert (corpus.name, len(corpus)) == ("tinyshakespeare", 338_025)


# ------------------------------------------------------------------ texts

TEXTS = {
    "blanks before newlines": " = Title = \n \n It 's here . \n" * 9,
    "newlines": "ab cd\n\n\n ef,\n  gh \n\nij\r\n\r\n" * 9,
    "no newline": "one long line, it's 3.14 of them; we'll see. " * 9,
    "no blanks": "中文没有空格，裏覚醒。it's,they'll.x1,2'3😀" * 30,
    "ends of texts": "a<|endoftext|>\nb <|endoftext|> c'<|endoftext|>'s" * 9,
    "a run of blanks": "a" + " " * 999 + "b" + "\n" * 99,
    "one letter": "a" * 2999,
    "apostrophes": "^'s" * 150,  # 's is a word, but not behind another sign
    "long words": "unbelievableness" * 99 + "123456789" * 99 + "-=*'" * 99 + "s",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_text_in_blocks_has_the_tokens_of_the_whole(text, size, vocabulary):
    """Memory holds a block at a time, whatever is in it."""
    blocks = [text[start : start + size] for start in range(0, len(text), size)]
    tokens = list(chain.from_iterable(encode(blocks)))
    assert tokens == vocabulary.encode(text, allowed_special={data.MARK})


def test_the_shipped_tokens_are_those_of_their_text(vocabulary, tmp_path):
    tokens = load_corpus(None, print).read(0, 338_025)
    play = vocabulary.decode(tokens.tolist())
    (tmp_path / "play.txt").write_text(play)
    corpus = load_corpus(str(tmp_path / "play.txt"), print)
    assert corpus.sha256 == data.TINYSHAKESPEARE_SHA256
    assert np.array_equal(corpus.read(0, 338_025), tokens)


def test_why_there_is_no_vocabulary(monkeypatch, tmp_path):
    """tiktoken's error is of the network, which it asks last."""
    monkeypatch.setattr(tiktoken, "get_encoding", Mock(side_effect=ConnectionError))
    for name in data.VOCABULARY_FILES:
        (tmp_path / name).touch()
    for folder, why in {"": "No such file", str(tmp_path): "it is damaged"}.items():
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", folder)
        with pytest.raises(UsageError, match=f"vocabulary in {folder or 'a cache'}: {why}"):
            data.gpt2_vocabulary()


SHARD = np.array([20240520, 1, 40], "<i4").tobytes().ljust(1101, b"\0")
LLAMA = np.array([20240801, 7, 9], "<i4").tobytes()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.bin", SHARD, "a.bin is not a whole shard of GPT-2's tokens: it is damaged, or"),
        ("a.bin", LLAMA, "a.bin is not a whole shard of GPT-2's tokens: it is damaged, or"),
        ("a.txt", b"caf\xe9", "a.txt is no text in UTF-8: unexpected end of data"),
        ("a.txt", b"", "a has no text: 0 tokens"),
    ],
)
def test_what_is_neither_text_nor_shard_is_told_what_to_do(
    name, content, said, vocabulary, tmp_path
):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said):
        load_corpus(str(tmp_path / name), print)


# ------------------------------------------------------------------ folders


def test_held_out_text_is_the_val_shards_or_the_last_tenth(tmp_path):
    folder = tmp_path / "fineweb-1.5"
    folder.mkdir()
    said = []

    def load():
        text, held_out = load_splits(str(folder), said.append)
        return [part.read(0, len(part)).tolist() for part in (text, held_out)]

    shard(folder / "my-val_train_0.bin", 0, 85)  # as data/prepare.py names those of my-val.txt
    shard(folder / "my-val_train_1.bin", 85, 100)
    (folder / "._a_train_0.bin").write_bytes(b"\0\5\x16\7")  # of macOS: not read
    assert load() == [[*range(90)], [*range(90, 100)]]
    shard(folder / "train_val_0.bin", 200, 250)
    assert load() == [[*range(100)], [*range(200, 250)]] and not said
    corpus = load_corpus(str(folder), said.append)
    assert (corpus.name, len(corpus)) == ("fineweb-1.5", 100)
    (folder / "tokenizer.bin").write_bytes(b"of another program")
    load()
    assert said == ["note  3 of 4 .bin files are shards, others are not read"]
