"""data/prepare.py."""

import os

import pytest
from helpers import load, write_shard

from ladder.corpus import load_corpus, load_splits
from ladder.errors import UsageError
from ladder.files import ROOT


def test_prepare_writes_all_shards_or_none(bytes_for_tokens, tmp_path, capsys):
    """Training on a part of them would look like training on all."""
    text = tmp_path / "play.txt"
    out = tmp_path / "out"
    out.mkdir()  # such as a volume of Docker: it cannot be renamed
    text.write_text("to be or not to be, that is the question")

    def prepare(tokens, write=write_shard):
        module = load(ROOT / "data" / "prepare.py")
        module.write_shard = write
        flags = f"--val-fraction 0.25 --shard-tokens {tokens}".split()
        return module.main([str(text), "--out", str(out), *flags])

    def stopped(path, tokens):
        write_shard(path, tokens)
        if path.name == "play_train_000003.bin":
            raise KeyboardInterrupt

    assert prepare(4, stopped) == 130 and not list(out.glob("*.bin"))
    with pytest.raises(UsageError, match=r"out is not all there: data/prepare\.py"):
        load_corpus(str(out), print)
    assert prepare(15) == 0
    shards = ["play_train_000000.bin", "play_train_000001.bin", "play_val_000000.bin"]
    assert sorted(os.listdir(out)) == shards
    tokens = load_corpus(str(out), print).read(0, 30)
    assert bytes(tokens.tolist()) == text.read_bytes()[:30]
    assert prepare(15) == 2
    assert f"error {out} exists already: delete it" in capsys.readouterr().err


def test_of_a_folder_without_tokens_to_hold_out_the_last_tenth_is_held_out(
    bytes_for_tokens, tmp_path
):
    (tmp_path / "train.txt").write_text("to be or not to be")
    (tmp_path / "val.txt").touch()
    said = []
    corpus, held_out = load_splits(str(tmp_path), said.append)
    assert (len(corpus), len(held_out)) == (17, 1)
    assert said[1:] == ["note  no tokens in val.txt: the last 10 % of the others are held out"]
