"""data/prepare.py."""

import os
import re

import pytest
from helpers import load, write_shard

from ladder.checkout import ROOT
from ladder.commands.main import program
from ladder.corpus import MARK, load_corpus, load_splits
from ladder.errors import UsageError


def prepare(*words, write=write_shard, shard_tokens=100):
    module = load(ROOT / "data" / "prepare.py")
    module.write_shard = write
    module.SHARD_TOKENS = shard_tokens
    return program(module.prepare, [str(word) for word in words])


def ids_of(corpus):
    return corpus.read(0, len(corpus)).tolist()


def test_prepare_writes_all_shards_or_none(vocabulary, tmp_path, capsys):
    """Training on a part of them would look like training on all."""
    text = tmp_path / "play.txt"
    out = tmp_path / "out"
    out.mkdir()  # such as a volume of Docker: it cannot be renamed
    words = "to be or not to be, that is the question, whether 'tis nobler"
    text.write_text(words)
    flags = [text, "--out", out, "--val-fraction", 0.25]

    def stopped(path, tokens):
        write_shard(path, tokens)
        if path.name == "play_train_000003.bin":
            with pytest.raises(UsageError, match="out has no shards"):
                load_corpus(str(out), print)
            raise KeyboardInterrupt

    assert prepare(*flags, write=stopped, shard_tokens=2) == 130
    assert not os.listdir(out)
    assert prepare(*flags, shard_tokens=7) == 0
    shards = ["play_train_000000.bin", "play_train_000001.bin", "play_val_000000.bin"]
    assert sorted(os.listdir(out)) == shards
    train, val = [ids_of(part) for part in load_splits(str(out), print)]
    assert vocabulary.decode(train + val) == words and len(val) == (len(train) + len(val)) // 4
    assert prepare(*flags) == 2
    assert f"error {out} exists already: delete it" in capsys.readouterr().err


def test_a_folder_is_its_texts_in_order_without_what_is_held_out(vocabulary, tmp_path, capsys):
    """Each once, whatever names links give it."""
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
    links = {"again": "more", "held.md": "val.txt", "more/up": ".."}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    out = tmp_path / "out"
    assert prepare(folder, "--val", folder / "val.txt", "--out", out) == 0
    left_out = re.findall("note  .*/mine/(.*) is left out", capsys.readouterr().out)
    assert left_out == ["again/up", "held.md", "more", "val.txt"]
    text, held_out = load_splits(str(out), print)
    assert vocabulary.decode(ids_of(held_out)) == "that is"
    assert vocabulary.decode(ids_of(text)) == f"\ufeffto\r\nbe{MARK}or\r\nnot"
