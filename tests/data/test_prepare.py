"""data/prepare.py."""

import os

import pytest
from helpers import load, write_shard

from ladder.commands.main import program
from ladder.corpus import END_OF_TEXT, load_corpus, load_splits
from ladder.errors import UsageError
from ladder.files import ROOT


def prepare(*words, write=write_shard, shard_tokens=100):
    module = load(ROOT / "data" / "prepare.py")
    module.write_shard = write
    module.SHARD_TOKENS = shard_tokens
    return program(module.prepare, [str(word) for word in words])


def text_of(corpus):
    return bytes(corpus.read(0, len(corpus)).tolist())


def test_prepare_writes_all_shards_or_none(bytes_for_tokens, tmp_path, capsys):
    """Training on a part of them would look like training on all."""
    text = tmp_path / "play.txt"
    out = tmp_path / "out"
    out.mkdir()  # such as a volume of Docker: it cannot be renamed
    text.write_text("to be or not to be, that is the question")
    flags = [text, "--out", out, "--val-fraction", 0.25]

    def stopped(path, tokens):
        write_shard(path, tokens)
        if path.name == "play_train_000003.bin":
            with pytest.raises(UsageError, match="out has no shards"):
                load_corpus(str(out), print)
            raise KeyboardInterrupt

    assert prepare(*flags, write=stopped, shard_tokens=4) == 130
    assert not os.listdir(out)
    assert prepare(*flags, shard_tokens=15) == 0
    shards = ["play_train_000000.bin", "play_train_000001.bin", "play_val_000000.bin"]
    assert sorted(os.listdir(out)) == shards
    parts = [text_of(part) for part in load_splits(str(out), print)]
    assert parts == [b"to be or not to be, that is th", b"e question"]
    assert prepare(*flags, shard_tokens=15) == 2
    assert f"error {out} exists already: delete it" in capsys.readouterr().err


def test_a_folder_is_its_texts_in_order_without_what_is_held_out(bytes_for_tokens, tmp_path):
    folder = tmp_path / "mine"
    for name, content in {
        "A.TXT": b"\xef\xbb\xbfto\r\nbe",
        "more/b.md": b"or\r\nnot",
        "val.txt": b"that is",
        "more/c.pdf": b"%PDF",
        "._A.TXT": b"\0\5\x16\7\xb0",  # of macOS
        ".ipynb_checkpoints/A-checkpoint.txt": b"to be",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    out = tmp_path / "out"
    assert prepare(folder, "--val", folder / "val.txt", "--out", out) == 0
    text, held_out = load_splits(str(out), print)
    assert text_of(held_out) == b"that is"
    ids = text.read(0, len(text)).tolist()
    assert ids == [*b"\xef\xbb\xbfto\r\nbe", END_OF_TEXT, *b"or\r\nnot"]
