"""corpus.py: shards, texts, folders as people have them, and what is held out."""

import hashlib
import os
import sys

import numpy as np
import pytest
import tiktoken
from helpers import SMALL, fails, load, write_shard

from ladder import corpus as data
from ladder.corpus import END_OF_TEXT, load_corpus, load_splits, pieces
from ladder.errors import BadInput
from ladder.files import ROOT


def write_texts(folder, **names):
    """Write files with these texts; `__` in a name is a folder."""
    for name, text in names.items():
        path = folder / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def shard(path, count, start=0):
    write_shard(path, np.arange(start, start + count, dtype=np.uint16))


def read(corpus) -> str:
    """The text of a corpus of bytes, `|` between documents."""
    tokens = corpus.read(0, len(corpus)).tolist()
    return "".join("|" if token == END_OF_TEXT else chr(token) for token in tokens)


@pytest.fixture
def text_of(bytes_for_tokens):
    """text_of(path): the text of the corpus there, and what was said of it."""

    def load_text(path):
        said = []
        return read(load_corpus(str(path), said.append)), said

    return load_text


@pytest.fixture
def vocabulary():
    try:
        return data.gpt2_vocabulary()
    except BadInput as error:
        pytest.skip(str(error))


# ------------------------------------------------------------------ shards


def test_a_shard_has_llm_c_s_layout_and_its_hash_covers_its_size_and_start(tmp_path):
    path = tmp_path / "a.bin"
    tokens = np.arange(600_000, dtype=np.uint32).astype(np.uint16)
    write_shard(path, tokens)
    header = np.fromfile(path, "<i4", 256)
    assert header[:4].tolist() == [20240520, 1, 600_000, 0]
    assert path.read_bytes()[1024:1030] == b"\x00\x00\x01\x00\x02\x00"
    corpus = load_corpus(str(path), say=print)
    assert np.array_equal(corpus.read(0, 600_000), tokens)
    covered = (600_000).to_bytes(8, "little") + tokens[:262_144].tobytes()
    assert corpus.sha256 == hashlib.sha256(covered).hexdigest()


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        ([1154925211], 1104, "is not a shard of GPT-2's tokens: it does not begin with llm.c's"),
        ([20240520, 1, 40], 1101, "is damaged: its header says 40 tokens, it has 38.5"),
    ],
)
def test_bad_shard_is_named_with_what_was_expected_and_found(tmp_path, header, size, said):
    start = np.array(header, "<i4").tobytes()
    (tmp_path / "bad.bin").write_bytes(start.ljust(size, b"\x00"))
    with pytest.raises(BadInput, match=rf"bad\.bin {said}"):
        load_corpus(str(tmp_path / "bad.bin"), say=print)


def test_the_default_corpus_ships_and_needs_no_vocabulary(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails
    said = []
    shard = (ROOT / "data" / "tinyshakespeare.bin").read_bytes()
    known = "c742a8065f5cb3b73276fb7a24b5f5b6c045ceacb26396c8b8837e2063919a40"
    assert hashlib.sha256(shard).hexdigest() == known
    corpus = load_corpus(None, said.append)
    assert (corpus.name, len(corpus), said) == ("tinyshakespeare", 338_025, [])
    assert corpus.sha256.startswith("86c4e6aa9db7")


# ------------------------------------------------------------------ texts


def test_pieces_have_the_tokens_of_the_whole_text(vocabulary):
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


def test_the_end_of_text_in_a_text_is_its_token(text_of, tmp_path):
    write_texts(tmp_path, stories="a<|endoftext|>\nb<|endoftext|>", other="c")
    assert text_of(tmp_path) == ("c|a|\nb|", [])


def test_without_a_vocabulary_a_text_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    def get_encoding(_):
        raise OSError("no network")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/my/cache")
    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    write_texts(tmp_path, play="to be")
    line = fails(capsys, *SMALL, "--data", tmp_path / "play.txt", "--log-dir", tmp_path)
    assert line.startswith("error no GPT-2 vocabulary on the network or in /my/cache: connect once")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.bin", np.array([20240801, 7, 9], "<i4").tobytes(), "is not a shard of GPT-2's tokens"),
        ("a.txt", b"caf\xe9", r"is not UTF-8 text \(byte 3\): unpack or convert it"),
    ],
)
def test_what_is_neither_text_nor_shard_is_told_what_to_do(name, content, said, text_of, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=f"^{tmp_path / name} {said}[^\n]*$"):
        text_of(tmp_path)


# ------------------------------------------------------------------ folders


def test_a_folder_of_texts_and_what_is_told_of_it(bytes_for_tokens, tmp_path):
    """With what systems leave there."""
    one = b"\xef\xbb\xbfto\r\nbe"
    two = b"or\r\nnot"
    (tmp_path / "more").mkdir()
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name, content in {
        "A.TXT": one,
        "more/b.md": two,
        "more/c.pdf": b"%PDF",
        "._A.TXT": b"\0\5\x16\7\xb0",  # of macOS
        ".ipynb_checkpoints/A-checkpoint.txt": one,
    }.items():
        (tmp_path / name).write_bytes(content)
    said = []
    corpus = load_corpus(str(tmp_path), said.append)
    assert corpus.read(0, len(corpus)).tolist() == [*one, END_OF_TEXT, *two]
    assert corpus.sha256 == hashlib.sha256(one + two).hexdigest()
    assert said == ["note  2 texts (.txt, .md) are read, not more/c.pdf"]


def test_links_are_followed_once_and_many_left_out_are_counted(text_of, tmp_path):
    write_texts(tmp_path, elsewhere__a="one", mine__b="two")
    mine = tmp_path / "mine"
    (mine / "linked").symlink_to(tmp_path / "elsewhere")
    (mine / "again").symlink_to(tmp_path / "elsewhere")
    (mine / "b2.txt").symlink_to(mine / "b.txt")
    (mine / "back").symlink_to(mine)
    for number in range(7):
        (mine / f"{number}.csv").touch()
    left_out = "0.csv, 1.csv, 2.csv, 3.csv, 4.csv, 2 more"
    note = f"note  2 texts (.txt, .md) are read, not {left_out}"
    assert text_of(mine) == ("one|two", [note])


def test_a_folder_of_nothing_we_know_is_refused(text_of, tmp_path):
    (tmp_path / "a.csv").touch()
    with pytest.raises(BadInput, match=r"holds neither .bin shards nor .txt or .md files$"):
        text_of(tmp_path)
    with pytest.raises(BadInput, match=r"cannot read .*b.txt: No such file"):
        text_of(tmp_path / "b.txt")


# ------------------------------------------------------------------ what is held out


def test_held_out_text_is_the_val_shards_or_the_last_tenth(tmp_path):
    folder = tmp_path / "fineweb-1.5"
    folder.mkdir()
    said = []
    shard(folder / "interval_train_000000.bin", 95)
    shard(folder / "my-val_train_000001.bin", 5, start=95)
    (folder / "._interval_train_000000.bin").write_bytes(b"\0\5\x16\7")  # of macOS: not read
    text, held_out = load_splits(str(folder), said.append)
    assert (len(text), len(held_out), said) == (90, 10, [])
    whole = np.concatenate([text.read(0, 90), held_out.read(0, 10)])
    assert whole.tolist() == list(range(100))
    shard(folder / "interval_val_000000.bin", 50)
    shard(folder / "validation.bin", 20)
    text, held_out = load_splits(str(folder), said.append)
    assert (text.name, len(text), len(held_out)) == ("fineweb-1.5", 100, 70)
    names = "interval_val_000000.bin, validation.bin"
    assert said == [f"note  fineweb-1.5 has 2 of 4 files held out (val): {names}"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("TinyStories_val", "val"),
        ("val_00001_of_00010", "val"),
        ("Validation-3", "val"),
        ("x_test_000001", "test"),
        ("interval_000001", "train"),
        ("val_train_000001", "train"),
        ("fineweb_val_000000 (copy)", "val"),
    ],
)
def test_the_last_word_for_a_split_counts(name, split, tmp_path):
    shard(tmp_path / f"{name}.bin", 10, start=20)
    shard(tmp_path / "other.bin", 10)
    text, held_out = load_splits(str(tmp_path), print)
    sizes = {"train": (18, 2), "val": (10, 10), "test": (9, 1)}
    assert (len(text), len(held_out)) == sizes[split]


SPLIT = dict(train="to train on", valid="to validate on", test="to test on")


def test_texts_are_held_out_as_shards_are(text_of, tmp_path):
    write_texts(tmp_path, **SPLIT)
    name = tmp_path.name
    assert text_of(tmp_path) == ("to train on", [
        f"note  {name} has 1 of 3 files held out (val): valid.txt",
        f"note  {name} has 1 of 3 files held out (test): test.txt",
    ])  # fmt: skip
    assert text_of(tmp_path / "valid.txt") == ("to validate on", [])
    (tmp_path / "train.txt").unlink()
    with pytest.raises(BadInput, match="holds only files for val or test: name one to train on it"):
        text_of(tmp_path)
    write_texts(tmp_path / "folders", train__a="one", val__a="two")
    splits = load_splits(str(tmp_path / "folders"), print)
    assert [read(part) for part in splits] == ["one", "two"]


@pytest.mark.parametrize("name", ["play", "my-val", "val.test"])
def test_what_prepare_writes_is_read_right_whatever_the_text_is_called(name, text_of, tmp_path):
    text = tmp_path / f"{name}.txt"
    text.write_text("0123456789")
    prepare = load(ROOT / "data" / "prepare.py").main
    for more in ([], ["--val-fraction", "0.3"]):
        out = tmp_path / f"out{len(more)}"
        assert prepare([str(text), "--out", str(out), *more]) == 0
    assert text_of(tmp_path / "out0")[0] == "0123456789"
    assert [read(part) for part in load_splits(str(out), print)] == ["0123456", "789"]


def test_prepare_keeps_the_held_out_files_of_a_folder(bytes_for_tokens, tmp_path, capsys):
    out = tmp_path / "out"
    write_texts(tmp_path / "in", **SPLIT)
    words = [str(tmp_path / "in"), "--out", str(out)]
    prepare = load(ROOT / "data" / "prepare.py").main
    assert prepare([*words, "--val-fraction", "0.1"]) == 2
    assert "has held-out files of its own: leave --val-fraction out" in capsys.readouterr().err
    assert prepare(words) == 0
    assert sorted(os.listdir(out)) == ["in_train_000000.bin", "in_val_000000.bin"]
    splits = load_splits(str(out), print)
    assert [read(part) for part in splits] == ["to train on", "to validate on"]
