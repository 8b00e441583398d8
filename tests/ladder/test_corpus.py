"""corpus.py: shards, texts, and what is held out."""

import hashlib
import sys

import numpy as np
import pytest
import tiktoken
from helpers import SMALL, fails, write_shard

from ladder import corpus as data
from ladder.corpus import load_corpus, load_splits, pieces, read_shard
from ladder.errors import BadInput
from ladder.files import ROOT


def test_the_hash_of_a_shard_covers_its_size_and_start(tmp_path):
    tokens = np.arange(600_000, dtype=np.uint32).astype(np.uint16)
    write_shard(tmp_path / "a.bin", tokens)
    covered = (600_000).to_bytes(8, "little") + tokens[:262_144].tobytes()
    corpus = load_corpus(str(tmp_path / "a.bin"), say=print)
    assert corpus.sha256 == hashlib.sha256(covered).hexdigest()


def test_shard_round_trip_and_layout(tmp_path):
    path = tmp_path / "a.bin"
    tokens = [1, 50256, 3]
    write_shard(path, np.array(tokens, dtype=np.uint16))
    header = np.fromfile(path, "<i4", 256)
    assert header[:4].tolist() == [20240520, 1, 3, 0]
    assert path.read_bytes()[1024:] == b"\x01\x00\x50\xc4\x03\x00"
    assert read_shard(path).tolist() == tokens


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        ([1154925211], 1104, "is not a shard: it does not begin with llm.c's header"),
        ([20240520, 1, 40], 1000, "is not a shard"),
        ([20240520, 1, 40], 1101, "is damaged: its header says 40 tokens, it has 38.5"),
    ],
)
def test_bad_shard_is_named_with_what_was_expected_and_found(tmp_path, header, size, said):
    start = np.array(header, "<i4").tobytes()
    (tmp_path / "bad.bin").write_bytes(start.ljust(size, b"\x00"))
    with pytest.raises(BadInput, match=rf"bad\.bin {said}"):
        load_corpus(str(tmp_path / "bad.bin"), say=print)


def test_held_out_text_is_the_val_shards_or_the_last_tenth(tmp_path):
    folder = tmp_path / "fineweb-1.5"
    folder.mkdir()
    tokens = np.arange(100, dtype=np.uint16)
    said = []
    write_shard(folder / "interval_train_000000.bin", tokens[:95])
    write_shard(folder / "my-val_train_000001.bin", tokens[95:])
    text, held_out = load_splits(str(folder), said.append)
    assert (len(text), len(held_out), said) == (90, 10, [])
    whole = np.concatenate([text.read(0, 90), held_out.read(0, 10)])
    assert np.array_equal(whole, tokens)
    write_shard(folder / "interval_val_000000.bin", tokens[:50])
    write_shard(folder / "validation.bin", tokens[:20])
    text, held_out = load_splits(str(folder), said.append)
    assert (text.name, len(text), len(held_out)) == ("fineweb-1.5", 100, 70)
    names = "interval_val_000000.bin, validation.bin"
    assert said == [f"note  fineweb-1.5 has 2 of 4 files held out (val): {names}"]


def test_the_default_corpus_ships_and_needs_no_vocabulary(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails
    said = []
    shard = (ROOT / "data" / "tinyshakespeare.bin").read_bytes()
    known = "c742a8065f5cb3b73276fb7a24b5f5b6c045ceacb26396c8b8837e2063919a40"
    assert hashlib.sha256(shard).hexdigest() == known
    corpus = load_corpus(None, said.append)
    assert (corpus.name, len(corpus), said) == ("tinyshakespeare", 338_025, [])
    assert corpus.sha256.startswith("86c4e6aa9db7")


def test_pieces_have_the_tokens_of_the_whole_text():
    try:
        vocabulary = data.gpt2_vocabulary()
    except BadInput as error:
        pytest.skip(str(error))
    encode = vocabulary.encode_ordinary
    tokens = load_corpus(None, print).read(0, 338_025)
    play = vocabulary.decode(tokens.tolist())
    assert hashlib.sha256(play.encode()).hexdigest() == data.TINYSHAKESPEARE_SHA256
    odd = "ab cd\n\n\n ef,\n  gh \n\nij\n" * 7
    for text, size in ((play, 1000), (odd, 1), (odd, 7)):
        found = []
        for piece in pieces(text, size):
            found += encode(piece)
        assert found == encode(text)


def test_without_a_vocabulary_a_text_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    def get_encoding(_):
        raise OSError("no network")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/my/cache")
    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    (tmp_path / "play.txt").write_text("to be")
    line = fails(capsys, *SMALL, "--data", tmp_path / "play.txt", "--log-dir", tmp_path)
    assert line.startswith("error no GPT-2 vocabulary on the network or in /my/cache: connect once")


def test_a_folder_of_texts_and_what_is_told_of_it(bytes_for_tokens, tmp_path):
    one = b"\xef\xbb\xbfto\r\nbe"
    two = b"or\r\nnot"
    said = []
    (tmp_path / "more").mkdir()
    (tmp_path / "A.TXT").write_bytes(one)
    (tmp_path / "more" / "b.md").write_bytes(two)
    (tmp_path / "more" / "c.jsonl").write_text("{}")
    corpus = load_corpus(str(tmp_path), said.append)
    assert corpus.read(0, len(corpus)).tolist() == [*one, 50256, *two]
    assert corpus.sha256 == hashlib.sha256(one + two).hexdigest()
    (note,) = said
    assert note == "note  2 texts (.txt, .md) are read, not more/c.jsonl"


def test_a_text_that_cannot_be_read_is_named(bytes_for_tokens, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    for name, said in (("a.txt", r"not UTF-8 text \(byte 3\)"), ("b.txt", "cannot read .*b.txt")):
        with pytest.raises(BadInput, match=said):
            load_corpus(str(tmp_path / name), say=print)
