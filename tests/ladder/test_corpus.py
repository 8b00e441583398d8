"""corpus.py: shards, texts, folders of shards, and what is held out."""

import hashlib
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tiktoken
import torch
from helpers import write_shard

from ladder import corpus as data
from ladder.corpus import encode, load_corpus, load_splits
from ladder.errors import UsageError


def shard(path, first, last):
    write_shard(path, np.arange(first, last, dtype=np.uint16))


# ------------------------------------------------------------------ shards


def test_a_shard_has_llm_c_s_layout_and_its_hash_covers_its_size_and_start(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    tokens = np.tile(np.arange(50_000, dtype=np.uint16), 6)
    write_shard(path, tokens)
    assert np.fromfile(path, "<i4", 4).tolist() == [20240520, 1, 300_000, 0]
    corpus = load_corpus(str(path), print0=print)
    assert np.array_equal(corpus.read(0, 300_000), tokens)
    monkeypatch.setattr(torch, "from_file", Mock(side_effect=RuntimeError))  # a drive without mmap
    assert np.array_equal(load_corpus(str(path), print).read(0, 300_000), tokens)
    covered = (300_000).to_bytes(8, "little") + tokens[:262_144].tobytes()
    assert corpus.sha256 == hashlib.sha256(covered).hexdigest()
    # A thousand shards are more files than many systems let a program open.
    assert path not in [file.resolve() for file in Path("/proc/self/fd").glob("*")]


# ------------------------------------------------------------------ texts

# Blanks and newlines before and behind words, one by one and in runs; signs that begin a word or
# end one; none of them; what Python calls a blank and GPT-2 does not.
PIECES = (
    " = Title \n \n It 's ",
    "ab\n\n\n ef,\n ij\r\n\r\n",
    "中文，they'll.x1,2'3😀\x1c\xa0\u2028 a",
)
TEXT = "".join(PIECES) * 9 + "a<|endoftext|>\nb <|endoftext|> c'" + "b" * 99 + " " * 99 + "b"


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_text_in_blocks_has_the_tokens_of_the_whole(size, vocabulary):
    """Memory holds a block at a time."""
    blocks = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    tokens = list(chain.from_iterable(encode(blocks)))
    assert tokens == vocabulary.encode(TEXT, allowed_special={data.MARK})


def test_why_there_is_no_vocabulary(monkeypatch, tmp_path):
    """Of the network, which is asked last, in its own words: a proxy, a name, a certificate."""
    error = ConnectionError("Max retries exceeded")
    error.__context__ = OSError("certificate verify failed")
    monkeypatch.setattr(tiktoken, "get_encoding", Mock(side_effect=error))
    for name in data.VOCABULARY_FILES:
        (tmp_path / name).touch()
    for folder, why in {"": "No such file", str(tmp_path): "it is damaged"}.items():
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", folder)
        said = f"vocabulary in {folder or 'a cache'}: {why}.*ConnectionError: certificate verify"
        with pytest.raises(UsageError, match=said):
            data.gpt2_vocabulary()


WHOLE = np.array([20240520, 1, 40], "<i4").tobytes().ljust(1104, b"\0")
ZEROS = np.array([20240520, 1, 5120], "<i4").tobytes().ljust(9000, b"\0").ljust(11264, b"a")
SHARD = WHOLE[:1101]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.BIN", SHARD, "a.BIN is not a whole shard of GPT-2's tokens: if it is damaged, get it"),
        ("a.txt", b"caf\xe9", "a.txt is no .bin, and no text in UTF-8: unexpected end of data"),
        ("a.txt", b"a".ljust(999, b"\0"), "a.txt has zeros in it, as if a download broke off"),
        ("a.txt", b"", "a has no text: 0 tokens"),
        ("nano/train.bin", SHARD[9:], "train.bin is not a whole shard .* has no header"),
        ("nano/data/a.bin", SHARD, "nano has no shards .*: .*nano/data has such files"),
        ("nano/a_val_0.bin", WHOLE, "nano has no shards .*; those for val or test do not count"),
        ("nano/a.txt", b"", "nano has no shards .*: `python data/prepare.py"),
    ],
)
def test_what_is_neither_text_nor_shard_is_told_what_to_do(
    name, content, said, vocabulary, tmp_path
):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        load_corpus(str(tmp_path / Path(name).parts[0]), print)


def test_zeros_in_a_shard_are_named(tmp_path):
    (tmp_path / "a.bin").write_bytes(ZEROS)
    notes = []
    load_corpus(str(tmp_path), notes.append)
    (note,) = notes
    assert note.endswith("a.bin has zeros in it, as if a download broke off: get it again")


def test_a_path_that_is_not_there_is_said_to_be_that(monkeypatch):
    monkeypatch.setattr(data, "gpt2_vocabulary", pytest.fail)
    with pytest.raises(UsageError, match=r"cannot read no\.txt: No such file or directory"):
        load_corpus("no.txt", print)


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
    (folder / "z_train.bin").symlink_to("train_val_0.bin")  # by its first name it is held out
    (folder / "my-val_train_1 (1).bin").write_bytes((folder / "my-val_train_1.bin").read_bytes())
    (folder / "a_val_0.bin.part").touch()
    (folder / "last_test_0.BIN").touch()
    shard(folder / "old-medieval-contest.bin", 100, 110)  # neither is a word of its name
    assert load() == [[*range(110)], [*range(200, 250)]]
    assert said == [
        "note  a_val_0.bin.part is not read: its name does not end in .bin",
        "note  my-val_train_1.bin is not read: it has the tokens of my-val_train_1 (1).bin",
        "note  z_train.bin is not read: it has the tokens of train_val_0.bin",
        "note  shards that are for tests are not read: 1",
    ]
    (folder / "train_val_0.bin").write_bytes(b"")  # else the last tenth would be held out
    with pytest.raises(UsageError, match=r"train_val_0\.bin is not a whole shard"):
        load()


def test_a_vocabulary_of_fewer_tokens_is_noted(tmp_path):
    said = []
    write_shard(tmp_path / "a.bin", np.arange(300_000, dtype=np.uint16) % 32_000)
    load_corpus(str(tmp_path / "a.bin"), said.append)
    (line,) = said
    assert line.startswith("note  a has no token above 31999 in its first 262144: GPT-2's go up to")
