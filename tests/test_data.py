"""Shards, corpora and batches."""

import hashlib
import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tiktoken
import torch
from conftest import ROOT, SMALL, load, rung

from ladder import corpus as data
from ladder.batches import Batches
from ladder.corpus import Corpus, gpt2_vocabulary, load_corpus, load_splits, pieces
from ladder.errors import BadInput
from ladder.files import lock, write_atomic
from ladder.shards import read_shard, write_shard


def corpus_of(*sizes):
    """Tokens 0, 1, 2, … cut into shards of the given sizes."""
    ends = np.cumsum(sizes)
    stream = np.arange(ends[-1], dtype=np.uint16)
    return Corpus("count", "0" * 64, np.split(stream, ends[:-1]))


def read(batches, count):
    """The first token of each row of the next batches, and whether every target is the next one."""
    found = [next(batches) for _ in range(count)]
    assert all(torch.equal(y, x + 1) for x, y in found)
    return torch.cat([x[:, 0] for x, _ in found]).tolist()


def test_an_epoch_holds_every_token_once_in_order_across_shards():
    batches = Batches(corpus_of(12, 1, 28, 5, 40), B=2, T=4)  # 86 tokens: 21 rows and 1 left
    assert (batches.rows_per_epoch, batches.dropped) == (21, 1)
    x, y = next(batches)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]] and x.dtype == torch.int64
    assert y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert read(batches, 10) == [*range(8, 84, 4), 0]  # after the last row comes the first
    assert Batches(corpus_of(9), B=2, T=4).rows_per_epoch == 2  # a batch and its last target
    with pytest.raises(BadInput, match=r"has 8 tokens, but one batch needs 9 \(B=2 x T=4 \+ 1\)"):
        Batches(corpus_of(8), B=2, T=4)
    with pytest.raises(BadInput, match="has token id 65535"):
        next(Batches(Corpus("bytes", "0" * 64, [np.full(9, 65535, np.uint16)]), B=2, T=4))


@pytest.mark.parametrize("shuffle", [None, 7])
def test_any_number_of_ranks_reads_what_one_process_would(shuffle):
    corpus = corpus_of(33, 7, 61)  # 25 rows of 4 tokens
    one = Batches(corpus, 1, 4, shuffle=shuffle)
    whole = read(one, 48)
    ranks = [Batches(corpus, 2, 4, rank, 3, shuffle) for rank in range(3)]
    together = [first for _ in range(8) for rank in ranks for first in read(rank, 1)]
    assert together == whole
    assert {rank.position for rank in ranks} == {one.position} == {48}
    resumed = Batches(corpus, 2, 4, shuffle=shuffle)
    resumed.position = 20  # as a checkpoint of any layout has it; the second epoch begins at 25
    assert read(resumed, 14) == whole[20:]


def test_a_shuffled_epoch_has_every_row_once_in_an_order_of_its_own():
    batches = Batches(corpus_of(101), B=5, T=4, shuffle=1)  # 25 rows
    first, second = read(batches, 5), read(batches, 5)
    assert sorted(first) == sorted(second) == list(range(0, 100, 4))
    assert first != second and first != sorted(first)
    assert first != read(Batches(corpus_of(101), B=5, T=4, shuffle=2), 5)


def test_a_part_of_a_part_of_several_shards():
    whole = corpus_of(10, 1, 30)
    part = whole.part(5, 40).part(4, 9)
    assert part.read(0, 5).tolist() == [9, 10, 11, 12, 13] and len(part) == 5
    assert len(whole.part(41, 41)) == 0  # the last tenth of a text of a few words


def test_shard_round_trip_and_layout(tmp_path):
    write_shard(tmp_path / "a.bin", np.array([1, 50256, 3], dtype=np.uint16))
    raw = (tmp_path / "a.bin").read_bytes()
    assert np.frombuffer(raw, "<i4", 256)[:4].tolist() == [20240520, 1, 3, 0]
    assert np.frombuffer(raw, "<u2", offset=1024).tolist() == [1, 50256, 3]
    assert read_shard(tmp_path / "a.bin").tolist() == [1, 50256, 3]


HEADER = {0: 20240520, 1: 1, 2: 40}


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        (HEADER, 100, "is not a shard: it is shorter than a header"),
        ({0: 0x70000000 + 65535}, 1104, "expected magic number 20240520, found 1879113727"),
        ({0: 1154925211}, 1104, "has no header: bare tokens, as nanoGPT's train.bin"),
        ({**HEADER, 1: 7}, 1104, "of version 7: expected 1"),
        ({**HEADER, 2: 0}, 1024, "is damaged: its header says 0 tokens"),
        (HEADER, 1101, "is damaged: its header says 40 tokens, it has 38.5"),
        (HEADER, 1106, "is damaged: its header says 40 tokens, it has 41"),
    ],
)
def test_bad_shard_is_named_with_what_was_expected_and_found(tmp_path, header, size, said):
    path = tmp_path / "bad.bin"
    numbers = np.zeros(300, "<i4")
    numbers[list(header)] = list(header.values())
    path.write_bytes(numbers.tobytes()[:size])
    with pytest.raises(BadInput) as caught:
        load_corpus(str(path), say=print)
    assert str(path) in str(caught.value) and said in str(caught.value)


def test_folder_of_shards_leaves_val_and_texts_out(tmp_path, monkeypatch, capsys):
    tmp_path = tmp_path / "fineweb-1.5"
    tmp_path.mkdir()
    write_shard(tmp_path / "my-val_train_000001.bin", np.array([3, 4], np.uint16))
    write_shard(tmp_path / "interval_train_000000.bin", np.array([1, 2], np.uint16))
    write_shard(tmp_path / "interval_val_000000.bin", np.array([9, 9], np.uint16))
    (tmp_path / "README.md").write_text("not read")
    monkeypatch.chdir(tmp_path)
    corpus = load_corpus(".", say=print)
    assert corpus.read(0, 4).tolist() == [1, 2, 3, 4] and len(corpus) == 4
    out = capsys.readouterr().out
    assert corpus.name == "fineweb-1.5" and "its texts are not read" in out
    assert f"{corpus.name} has 1 of its 3 shards held out (val)" in out


@pytest.mark.parametrize("name", ["a_val_000000", "validation", "VAL", "Val_0", "a_valid_000"])
def test_held_out_text_is_the_val_shards_or_the_last_tenth(name, tmp_path):
    write_shard(tmp_path / "a_train_000000.bin", np.arange(100, dtype=np.uint16))
    text, held_out = load_splits(str(tmp_path), say=print)
    assert text.read(0, 90).tolist() == list(range(90)) and len(text) == 90
    assert held_out.read(0, 10).tolist() == list(range(90, 100))
    write_shard(tmp_path / f"{name}.bin", np.arange(50, dtype=np.uint16))
    assert [*map(len, load_splits(str(tmp_path), say=print))] == [100, 50]


def test_the_default_corpus_ships_and_needs_no_vocabulary(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails
    said, shard = [], (ROOT / "data" / "tinyshakespeare.bin").read_bytes()
    known = "c742a8065f5cb3b73276fb7a24b5f5b6c045ceacb26396c8b8837e2063919a40"
    assert hashlib.sha256(shard).hexdigest() == known
    corpus = load_corpus(None, said.append)
    assert (corpus.name, len(corpus), said) == ("tinyshakespeare", 338_025, [])
    assert corpus.sha256.startswith("86c4e6aa9db7")


def test_pieces_have_the_tokens_of_the_whole_text():
    try:
        vocabulary = gpt2_vocabulary()
    except BadInput as error:
        pytest.skip(str(error))
    tokens = load_corpus(None, print).read(0, 338_025).tolist()
    text = vocabulary.decode(tokens)
    assert hashlib.sha256(text.encode()).hexdigest() == data.TINYSHAKESPEARE_SHA256
    assert [t for piece in pieces(text, 1000) for t in vocabulary.encode_ordinary(piece)] == tokens
    text = "ab cd\n\n\n ef,\n  gh \n\nij\n" * 7 + "end"
    for size in range(1, 40):
        parts = list(pieces(text, size))
        found = [t for part in parts for t in vocabulary.encode_ordinary(part)]
        assert found == vocabulary.encode_ordinary(text) and len(parts) > len(text) / (size + 50)


@pytest.mark.parametrize("trouble", [OSError("no network"), None])
def test_without_a_vocabulary_a_text_is_refused_in_one_line(trouble, tmp_path, monkeypatch, capsys):
    def get_encoding(name):
        if trouble:
            raise trouble
        time.sleep(2)  # as on a network that drops packets

    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    monkeypatch.setattr(data, "SILENCE_S", 0.1)
    monkeypatch.setattr(data, "VOCABULARY_TIMEOUT_S", 0.1)
    (tmp_path / "play.txt").write_text("to be")
    flags = ["--data", str(tmp_path / "play.txt"), "--log-dir", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        load(rung(0)).main([*SMALL, *flags])
    *waiting, line = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith("error no GPT-2 vocabulary in tiktoken's cache")
    assert [line[:12] for line in waiting] == ([] if trouble else ["note  waitin"])


@pytest.fixture
def bytes_for_tokens(monkeypatch):
    """Texts are tokenized into their bytes."""
    vocabulary = SimpleNamespace(encode_ordinary=lambda text: list(text.encode()))
    monkeypatch.setattr(data, "gpt2_vocabulary", lambda: vocabulary)


@pytest.mark.usefixtures("bytes_for_tokens")
def test_a_folder_of_texts_and_what_is_told_of_it(tmp_path):
    one, two, said = b"\xef\xbb\xbfto\r\nbe", b"or\r\nnot<|endoftext|>", []
    (tmp_path / "more").mkdir()
    (tmp_path / "A.TXT").write_bytes(one)
    (tmp_path / "more" / "b.md").write_bytes(two)
    (tmp_path / "more" / "c.jsonl").write_text("{}")
    (tmp_path / "more" / "up").symlink_to(tmp_path)
    corpus = load_corpus(str(tmp_path), said.append)
    assert corpus.read(0, len(corpus)).tolist() == [*one, 50256, *two]
    # Not that of both joined, which another text could be.
    both = b"".join(hashlib.sha256(text).digest() for text in (one, two))
    assert corpus.sha256 == hashlib.sha256(both).hexdigest()
    left_out, *surprises = said
    assert "left out: " in left_out and "1 .jsonl" in left_out and "1 link" in left_out
    for line, words in zip(
        surprises,
        ("2 of 2 texts of {}: CRLF", "1 of 2 texts of {}: a byte-", "1 of 2 texts of {}: <|endof"),
        strict=True,
    ):
        assert line.startswith("note  in " + words.format(tmp_path.name))


@pytest.mark.usefixtures("bytes_for_tokens")
def test_a_long_text_shows_progress_and_names_prepare(tmp_path, monkeypatch):
    text, said = b"to be\n" * 500_000, []
    monkeypatch.setattr(data, "SILENCE_S", 0)
    monkeypatch.setattr(data, "LARGE_TEXT_MB", 1)
    (tmp_path / "big.txt").write_bytes(text)
    corpus = load_corpus(str(tmp_path / "big.txt"), said.append)
    assert corpus.sha256 == hashlib.sha256(text).hexdigest()
    assert "tokenizing big, 3 MB" in said[0] and "data/prepare.py" in said[0]
    assert said[1:] == [f"note  tokenizing big: {n} of 3 MB" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"caf\xe9", r"a\.txt is not UTF-8 text \(byte 3\): convert it first"),
        ("a.txt", b"", "corpus a is empty"),
        ("b.txt", b"", r"cannot read .*a\.txt: No such file"),
        ("a.txt/b.py", b"", r"holds neither \.bin shards nor \.txt or \.md files"),
    ],
)
def test_a_text_that_cannot_be_read_is_named(tmp_path, name, content, said):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=said):
        load_corpus(str(tmp_path / "a.txt"), say=print)


def prepare(*flags, **changes):
    vars(module := load(ROOT / "data" / "prepare.py")).update(changes)
    return module.main([str(flag) for flag in flags])


@pytest.mark.usefixtures("bytes_for_tokens")
def test_prepare_writes_shards_that_scripts_read(tmp_path, capsys):
    text, out = tmp_path / "play.txt", tmp_path / "new" / "shards"
    text.write_text("to be or not to be, that is the question")
    flags = (text, "--shard-tokens", 15, "--val-fraction", 0.25, "--out")
    assert prepare(*flags, out) == 0
    shards = ["play_train_000000.bin", "play_train_000001.bin", "play_val_000000.bin"]
    assert sorted(os.listdir(out)) == shards and os.listdir(out.parent) == ["shards"]
    corpus = load_corpus(str(out), say=print)
    assert bytes(corpus.read(0, len(corpus)).astype(np.uint8)) == text.read_bytes()[:30]
    for taken in (out, text):
        assert prepare(*flags, taken) == 2
        assert f"error {taken} exists already: delete it" in capsys.readouterr().err
    assert prepare(text, "--out", tmp_path / "other", "--val-fraction", 1e-7) == 2
    assert "--val-fraction 1e-07 of 40 tokens is not even one" in capsys.readouterr().err


@pytest.mark.usefixtures("bytes_for_tokens")
def test_prepare_shows_no_shard_before_the_last_is_written(tmp_path, capsys):
    """Training on a part of them would look like training on all."""
    text, out, unfinished = (tmp_path / name for name in ("play.txt", "out", "out.unfinished"))
    text.write_text("to be or not to be")
    flags = (text, "--out", out, "--shard-tokens")

    def write(path, tokens):
        write_shard(path, tokens)
        assert not out.exists()
        if path.name == "play_train_000003.bin":
            raise KeyboardInterrupt

    assert prepare(*flags, 4, write_shard=write) == 130 and not out.exists()
    assert len([*unfinished.glob("*.bin")]) == 4
    with lock(unfinished):
        assert prepare(*flags, 10) == 2
    assert "another run is at work" in capsys.readouterr().err
    assert prepare(*flags, 10) == 0 and len(os.listdir(out)) == 2 and not unfinished.exists()


def test_a_write_that_breaks_leaves_no_half_file(tmp_path):
    with pytest.raises(TypeError):
        write_atomic(tmp_path / "a.bin", b"half", "not bytes")
    assert os.listdir(tmp_path) == []
