"""data/prepare.py."""

import os
import re

import pytest
from helpers import load, write_shard

from ladder.checkout import ROOT
from ladder.commands.main import program
from ladder.corpus import MARK, load_corpus, load_splits
from ladder.disk import lock
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
            with pytest.raises(UsageError, match="out has no shards "):
                load_corpus(str(out), print)
            raise KeyboardInterrupt

    assert prepare(*flags, write=stopped, shard_tokens=2) == 130
    assert os.listdir(out) == [".lock"]
    with lock(out):
        assert prepare(*flags) == 2
    assert "another run is at work in" in capsys.readouterr().err
    (out / ".unfinished-x").mkdir()  # kill -9
    assert prepare(*flags) == 2
    assert "out has .unfinished-x of a run that was killed: delete that" in capsys.readouterr().err
    (out / ".unfinished-x").rmdir()
    assert prepare(*flags, shard_tokens=7) == 0
    shards = ["play_train_000000.bin", "play_train_000001.bin", "play_val_000000.bin"]
    assert sorted(os.listdir(out)) == [".lock", *shards]
    train, val = [ids_of(part) for part in load_splits(str(out), print)]
    assert vocabulary.decode(train + val) == words and len(val) == (len(train) + len(val)) // 4
    assert prepare(*flags) == 2
    said = f"error {out} has files already: choose a new folder (--out), such as {out}-shards\n"
    assert capsys.readouterr().err == said


def test_the_texts_themselves_are_no_place_for_shards(tmp_path, capsys):
    """As for data/mine without --out."""
    (tmp_path / "a.txt").write_text("a")
    for text in (tmp_path, tmp_path / "a.txt"):
        assert prepare(text, "--out", tmp_path) == 2
        assert f"choose a new folder (--out), such as {tmp_path}-shards" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_is_its_texts_in_order_without_what_is_held_out(vocabulary, tmp_path, capsys):
    """Each once, whatever names links give it."""
    folder = tmp_path / "mine"
    for name, content in {
        "A.TXT": b"\xef\xbb\xbfto\r\nbe",
        "more/b.md": b"or\r\nnot",
        "val.txt": b"that is",
        "more/c.pdf": b"%PDF",
        "more/wiki_00": b"a question",
        "val copy.txt": b"that is",
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
    said = capsys.readouterr().out
    left_out = re.findall("note  .*/mine/(.*) is left out", said)
    assert left_out == ["again/up", "held.md", "more", "val copy.txt", "val.txt"]
    assert f"note  files that are no .txt or .md are left out: 2, as {folder}/again/c.pdf" in said
    text, held_out = load_splits(str(out), print)
    assert vocabulary.decode(ids_of(held_out)) == "that is"
    assert vocabulary.decode(ids_of(text)) == f"\ufeffto\r\nbe{MARK}or\r\nnot"
