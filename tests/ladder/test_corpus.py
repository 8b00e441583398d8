"""corpus.py: shards, texts, folders as people have them, and what is held out."""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from helpers import SMALL, fails, load, write_shard

from ladder import corpus as data
from ladder.corpus import END_OF_TEXT, load_corpus, load_splits, pieces, split_of
from ladder.errors import UsageError
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
    except UsageError as error:
        pytest.skip(str(error))


# ------------------------------------------------------------------ shards


def test_a_shard_has_llm_c_s_layout_and_its_hash_covers_its_size_and_start(tmp_path):
    path = tmp_path / "a.bin"
    tokens = np.arange(600_000, dtype=np.uint32).astype(np.uint16)
    write_shard(path, tokens)
    header = np.fromfile(path, "<i4", 256)
    assert header[:4].tolist() == [20240520, 1, 600_000, 0]
    corpus = load_corpus(str(path), print0=print)
    assert np.array_equal(corpus.read(0, 600_000), tokens)
    covered = (600_000).to_bytes(8, "little") + tokens[:262_144].tobytes()
    assert corpus.sha256 == hashlib.sha256(covered).hexdigest()


def test_the_default_corpus_ships_and_needs_no_vocabulary(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails
    said = []
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


SHARD = np.array([20240520, 1, 40], "<i4").tobytes().ljust(1101, b"\0")
LLAMA = np.array([20240801, 7, 9], "<i4").tobytes()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.bin", SHARD, "is damaged: its header says 40 tokens, it has 38.5"),
        ("a.bin", LLAMA, "is not a shard of GPT-2's tokens: it does not begin with llm.c's"),
        ("a.txt", b"caf\xe9", r"is not UTF-8 text \(byte 3\): unpack or convert it"),
    ],
)
def test_what_is_neither_text_nor_shard_is_told_what_to_do(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=f"^{tmp_path / name} {said}[^\n]*$"):
        load_corpus(str(tmp_path / name), print)


# ------------------------------------------------------------------ folders


def test_a_folder_of_texts_and_what_is_told_of_it(bytes_for_tokens, tmp_path):
    """With what systems leave there. Links to folders are named and not followed."""
    folder = tmp_path / "mine"
    elsewhere = tmp_path / "elsewhere"
    one = b"\xef\xbb\xbfto\r\nbe"
    two = b"or\r\nnot"
    for path in (folder / ".ipynb_checkpoints", folder / "more", elsewhere):
        path.mkdir(parents=True)
    (folder / "link").symlink_to(elsewhere)
    (folder / "gone.txt").symlink_to(folder / "nothing")
    for name, content in {
        "A.TXT": one,
        "more/b.md": two,
        "more/c.pdf": b"%PDF",
        "._A.TXT": b"\0\5\x16\7\xb0",  # of macOS
        ".ipynb_checkpoints/A-checkpoint.txt": one,
    }.items():
        (folder / name).write_bytes(content)
    said = []
    corpus = load_corpus(str(folder), said.append)
    assert corpus.read(0, len(corpus)).tolist() == [*one, END_OF_TEXT, *two]
    assert corpus.sha256 == hashlib.sha256(one + two).hexdigest()
    left_out = "gone.txt, link, more/c.pdf"
    assert said == [f"note  only texts (.txt, .md) are read, not {left_out}"]


def test_shards_come_before_texts_also_in_folders_below(text_of, tmp_path):
    """What is not read is named; a .bin of another program is no shard."""
    write_texts(tmp_path, README="about these shards")
    (tmp_path / "vocab.bin").write_bytes(b"of another program")
    assert text_of(tmp_path) == (
        "about these shards",
        ["note  only texts (.txt, .md) are read, not vocab.bin"],
    )
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        shard(tmp_path / split / "000.BIN", 3, start=ord("a"))
    said = text_of(tmp_path)
    assert said[0] == "abc"
    assert said[1][0] == "note  only shards are read, not README.txt, vocab.bin"


def test_a_folder_of_nothing_we_know_is_refused(text_of, tmp_path):
    (tmp_path / "a.csv").touch()
    with pytest.raises(UsageError, match=r"holds neither .bin shards nor .txt or .md files$"):
        text_of(tmp_path)


# ------------------------------------------------------------------ what is held out


def test_held_out_text_is_the_val_shards_or_the_last_tenth(tmp_path):
    folder = tmp_path / "fineweb-1.5"
    folder.mkdir()
    said = []
    shard(folder / "a_train_0.bin", 95)
    shard(folder / "a_train_1.bin", 5, start=95)
    (folder / "._a_train_0.bin").write_bytes(b"\0\5\x16\7")  # of macOS: not read
    text, held_out = load_splits(str(folder), said.append)
    assert text.read(0, 90).tolist() == list(range(90))
    assert held_out.read(0, len(held_out)).tolist() == list(range(90, 100))
    assert len(text) == 90 and not said
    shard(folder / "a_val_0.bin", 50)
    text, held_out = load_splits(str(folder), said.append)
    assert (text.name, len(text), len(held_out)) == ("fineweb-1.5", 100, 50)
    assert said == ["note  fineweb-1.5 has 1 of 3 files held out (val): a_val_0.bin"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("TinyStories_val", "val"),
        ("x_test_000001", "test"),
        ("dev", "val"),
        ("devices_eval-2", "val"),
        ("my-val_train_000001", "train"),  # as data/prepare.py names the shards of my-val.txt
        ("fineweb_val_000000 (copy)", "val"),
    ],
)
def test_the_last_word_for_a_split_counts(name, split):
    assert split_of(Path(f"{name}.bin")) == split


SPLIT = dict(train="to train on", valid__a="to validate on", test="to test on")


def test_texts_are_held_out_as_shards_are(text_of, tmp_path):
    write_texts(tmp_path, **SPLIT)
    held_out = f"note  {tmp_path.name} has 1 of 3 files held out"
    notes = [f"{held_out} (val): valid/a.txt", f"{held_out} (test): test.txt"]
    assert text_of(tmp_path) == ("to train on", notes)
    (tmp_path / "train.txt").unlink()
    with pytest.raises(
        UsageError, match="holds only files for val or test: name one to train on it"
    ):
        text_of(tmp_path)
    assert text_of(tmp_path / "test.txt") == ("to test on", [])


def test_prepare_keeps_the_held_out_files_of_a_folder(bytes_for_tokens, tmp_path):
    out = str(tmp_path / "out")
    write_texts(tmp_path / "in", **SPLIT)
    prepare = load(ROOT / "data" / "prepare.py").main
    assert prepare([str(tmp_path / "in"), "--out", out]) == 0
    splits = load_splits(out, print)
    assert [read(part) for part in splits] == ["to train on", "to validate on"]
