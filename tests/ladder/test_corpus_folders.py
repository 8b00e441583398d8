"""Folders as people have them: what is read, what is held out, and what a file that is not ours is.

Texts are tokenized into their bytes.
"""

import os

import numpy as np
import pytest
from helpers import load, write_shard

from ladder import corpus
from ladder.batches import Batches
from ladder.corpus import END_OF_TEXT, GPT2_VOCAB_SIZE, MARK, load_corpus, load_splits
from ladder.errors import BadInput
from ladder.files import ROOT

pytestmark = pytest.mark.usefixtures("bytes_for_tokens")
gpt2_vocabulary = corpus.gpt2_vocabulary  # the real one


def texts(folder, **names):
    """Write files with these texts; `__` in a name is a folder, `_` at its start a dot."""
    for name, text in names.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".txt").write_text(text)


def read(corpus) -> str:
    """The text of a corpus, `|` between documents."""
    tokens = corpus.read(0, len(corpus)).tolist()
    return "".join("|" if token == 50256 else chr(token) for token in tokens)


def test_gpt2s_vocabulary_has_the_end_of_text():
    try:
        vocabulary = gpt2_vocabulary()
    except BadInput as error:
        pytest.skip(str(error))
    assert vocabulary.encode("a<|endoftext|>b", allowed_special={MARK}) == [64, 50256, 65]
    assert (vocabulary.eot_token, vocabulary.n_vocab) == (END_OF_TEXT, GPT2_VOCAB_SIZE)
    text = "To be, or <| not\n\n to be"
    ids = vocabulary.encode(text, allowed_special={MARK})
    assert ids == vocabulary.encode_ordinary(text) and vocabulary.decode(ids) == text


def test_what_systems_leave_in_a_folder_is_not_read_and_is_named(tmp_path):
    texts(tmp_path, story="one", b__more="two")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "story-checkpoint.txt").write_text("one")
    (tmp_path / "._story.txt").write_bytes(b"\0\5\x16\7\xb0")  # of macOS
    (tmp_path / "b" / "notes.pdf").write_bytes(b"%PDF")
    said = []
    assert read(load_corpus(str(tmp_path), said.append)) == "two|one"
    left_out = "b/notes.pdf, ._story.txt, .ipynb_checkpoints"
    assert said == [f"note  2 texts (.txt, .md) are read, not {left_out}"]


def test_a_folder_whose_own_name_begins_with_a_dot_is_read(tmp_path):
    texts(tmp_path / ".texts", story="one")
    assert read(load_corpus(str(tmp_path / ".texts"), print)) == "one"


def test_links_are_followed_once(tmp_path):
    texts(tmp_path, elsewhere__a="one", mine__b="two")
    mine = tmp_path / "mine"
    (mine / "linked").symlink_to(tmp_path / "elsewhere")
    (mine / "again").symlink_to(tmp_path / "elsewhere")
    (mine / "b2.txt").symlink_to(mine / "b.txt")
    (mine / "back").symlink_to(mine)
    (mine / "gone.txt").symlink_to(tmp_path / "none.txt")
    said = []
    assert read(load_corpus(str(mine), said.append)) == "one|two"
    assert said == ["note  2 texts (.txt, .md) are read, not b2.txt, back, gone.txt, linked"]


def test_many_that_are_left_out_are_counted(tmp_path):
    texts(tmp_path, story="one")
    for number in range(9):
        (tmp_path / f"{number}.csv").touch()
    said = []
    load_corpus(str(tmp_path), said.append)
    assert said[0].endswith("are read, not 0.csv, 1.csv, 2.csv, 3.csv, 4.csv, 4 more")


def test_copies_are_named(tmp_path):
    texts(tmp_path, **{"story": "one", "story (copy)": "one", "two": "two"})
    said = []
    assert read(load_corpus(str(tmp_path), said.append)) == "one|one|two"
    note = "note  another file has the same content, so it counts twice"
    assert said == [f"{note}: story.txt"]
    write_shard(tmp_path / "a_train_0.bin", np.arange(9, dtype=np.uint16))
    write_shard(tmp_path / "a_val_0.bin", np.arange(9, dtype=np.uint16))
    load_corpus(str(tmp_path), said.append)
    assert said[1] == f"{note}: a_val_0.bin"


def test_shards_that_a_mac_left_are_not_read(tmp_path):
    write_shard(tmp_path / "a.bin", np.arange(9, dtype=np.uint16))
    (tmp_path / "._a.bin").write_bytes(b"\0\5\x16\7")
    assert len(load_corpus(str(tmp_path), print)) == 9


@pytest.mark.parametrize(
    "name",
    ["play", "train", "valid train", "TinyStoriesV2-GPT4-train", "my-val", "val.test", "été"],
)
def test_what_prepare_writes_is_read_right_whatever_the_text_is_called(name, tmp_path):
    text = tmp_path / f"{name}.txt"
    text.write_text("0123456789")
    module = load(ROOT / "data" / "prepare.py")
    for more in ([], ["--val-fraction", "0.3"]):
        out = tmp_path / f"out{len(more)}"
        assert module.main([str(text), "--out", str(out), *more]) == 0
    assert read(load_corpus(str(tmp_path / "out0"), print)) == "0123456789"
    assert read(load_corpus(str(out), print)) == "0123456"
    assert [read(part) for part in load_splits(str(out), print)] == ["0123456", "789"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("fineweb_val_000000", "val"),
        ("TinyStories_val", "val"),
        ("val_00001_of_00010", "val"),
        ("val0", "val"),
        ("Validation-3", "val"),
        ("x_test_000001", "test"),
        ("interval_000001", "train"),
        ("val_train_000001", "train"),
        ("fineweb_train_000001 (copy)", "train"),
        ("fineweb_val_000000 (copy)", "val"),
    ],
)
def test_the_last_word_for_a_split_counts(name, split, tmp_path):
    write_shard(tmp_path / f"{name}.bin", np.arange(20, 30, dtype=np.uint16))
    write_shard(tmp_path / "other.bin", np.arange(10, dtype=np.uint16))
    text, held_out = load_splits(str(tmp_path), print)
    sizes = {"train": (18, 2), "val": (10, 10), "test": (9, 1)}
    assert (len(text), len(held_out)) == sizes[split]


def test_texts_are_held_out_as_shards_are(tmp_path):
    texts(tmp_path, train="to train on", valid="to validate on", test="to test on")
    said = []
    name = tmp_path.name
    assert read(load_corpus(str(tmp_path), said.append)) == "to train on"
    assert said == [
        f"note  {name} has 1 of 3 files held out (val): valid.txt",
        f"note  {name} has 1 of 3 files held out (test): test.txt",
    ]
    assert [read(part) for part in load_splits(str(tmp_path), print)] == [
        "to train on",
        "to validate on",
    ]
    assert read(load_corpus(str(tmp_path / "valid.txt"), print)) == "to validate on"


def test_folders_called_train_and_val_are_the_splits(tmp_path):
    texts(tmp_path, train__a="one", val__a="two")
    assert [read(part) for part in load_splits(str(tmp_path), print)] == ["one", "two"]


def test_a_folder_of_held_out_files_alone_is_refused(tmp_path):
    texts(tmp_path, valid="to validate on")
    with pytest.raises(BadInput, match="holds only files for val or test: name one to train on it"):
        load_corpus(str(tmp_path), print)


def test_prepare_keeps_the_held_out_files_of_a_folder(tmp_path, capsys):
    texts(tmp_path / "in", train="to train on", valid="to validate on", test="to test on")
    words = [str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    prepare = load(ROOT / "data" / "prepare.py").main
    assert prepare([*words, "--val-fraction", "0.1"]) == 2
    assert "has held-out files of its own: leave --val-fraction out" in capsys.readouterr().err
    assert prepare(words) == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["in_train_000000.bin", "in_val_000000.bin"]
    parts = load_splits(str(tmp_path / "out"), print)
    assert [read(part) for part in parts] == ["to train on", "to validate on"]


def test_the_end_of_text_in_a_text_is_its_token(tmp_path):
    texts(tmp_path, stories="a<|endoftext|>\nb<|endoftext|>", other="c")
    said = []
    assert read(load_corpus(str(tmp_path), said.append)) == "c|a|\nb|"
    note = f"note  {tmp_path.name} has <|endoftext|> 2 times, each read as one token (50256)"
    assert said == [note]


LLAMA = np.array([20240801, 7, 9], "<i4").tobytes().ljust(1024 + 36, b"\0")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.bin", LLAMA, "has the tokens of Llama 3, not of GPT-2: make shards"),
        ("a.bin", b"PK\3\4...", "is a zip archive or PyTorch's weights"),
        ("a.txt", b"PK\3\4...", "is a zip archive"),
        ("a.npy", b"\x93NUMPY\1\0", "is a NumPy array: convert it with write_shard"),
        ("a.txt.gz", b"\x1f\x8b\b\0", "is compressed: gunzip it"),
        ("a.bin.zst", b"\x28\xb5\x2f\xfd", "is compressed: unzstd it"),
        ("a.parquet", b"PAR1\x15\x04", "is Parquet: write its texts"),
        ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid", "run git lfs pull"),
        ("a.bin", b"version https://git-lfs.github.com/spec/v1\noid", "run git lfs pull"),
        ("a.jsonl", b'{"text": "to be"}\n', "is JSON: write its texts into a .txt file"),
        ("a.txt", "to be".encode("utf-16-le"), "has zero bytes: it is binary, or UTF-16"),
        ("a.txt", "to be".encode("utf-16"), "has zero bytes: it is binary, or UTF-16"),
        ("a.pt", b"PK\3\4...", "is a zip archive or PyTorch's weights: unpack it, or name a text"),
    ],
)
def test_what_is_neither_text_nor_shard_is_told_what_to_do(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path / name, tmp_path):  # a folder names the file that is all it has
        with pytest.raises(BadInput, match=f"^{tmp_path / name} [^\n]*{said}[^\n]*$"):
            load_corpus(str(path), print)


def test_a_folder_of_nothing_we_know_is_refused(tmp_path):
    (tmp_path / "a.csv").touch()
    (tmp_path / "._story.txt").write_bytes(b"\0\5\x16\7\xb0")
    with pytest.raises(BadInput, match=r"holds neither .bin shards nor .txt or .md files$"):
        load_corpus(str(tmp_path), print)


def test_more_blanks_than_tiktoken_reads_are_refused(tmp_path):
    texts(tmp_path, fine="a" + " " * 499_999 + "b")
    assert len(load_corpus(str(tmp_path), print)) == 500_001
    texts(tmp_path, worse="a" + " \n" * 250_000 + "b")
    with pytest.raises(BadInput, match=r"worse.txt has 500,000 blanks in a row: take them out"):
        load_corpus(str(tmp_path), print)


def test_a_text_too_short_for_one_row_is_not_told_of_a_smaller_batch(tmp_path):
    texts(tmp_path, short="to be")
    corpus = load_corpus(str(tmp_path), print)
    with pytest.raises(BadInput, match=r"use more text or a smaller --seq-len$"):
        Batches(corpus, 1, 64)
    with pytest.raises(BadInput, match=r"a smaller --batch-size or --seq-len$"):
        Batches(corpus, 2, 64)
