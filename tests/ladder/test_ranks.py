"""ranks.py: flags and defaults of runs on several ranks."""

import math
from types import SimpleNamespace

import pytest
from jobs import command_line

from ladder import ranks, weights
from ladder.errors import UsageError


def test_two_ranks_need_two_gpus(card, monkeypatch, capsys):
    card("T4")
    monkeypatch.setattr(ranks, "LOCAL_WORLD", 2)
    with pytest.raises(SystemExit, match="2"):
        ranks.parse("", [])
    said = "error torchrun started 2 processes, found 1 CUDA device(s): --nproc_per_node=1, or"
    assert capsys.readouterr().err.startswith(said)


def test_a_rank_with_another_pytorch_says_so(shard, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "on_rank_0", lambda here: here() and "torch 2.9.0")
    with pytest.raises(
        UsageError, match=r"this rank has .*; rank 0 torch 2.9.0: give every machine"
    ):
        ranks.prepare(ranks.parse("", command_line(shard, tmp_path)), print)


# 36·C bytes a layer and token, 6·V a token, 22 a parameter (16 over the ranks where it is sharded).
@pytest.mark.parametrize(
    ("gpu", "flags", "world", "sharded", "B"),
    [
        ("H100", [], 1, False, 64),
        ("RTX 4090", ["--model", "gpt2-xl"], 4, False, 1),
        ("RTX 4090", ["--model", "gpt2-xl"], 4, True, 4),
        ("H100", [], 64, False, 8),
    ],
)
def test_the_default_batch_fits_the_card_and_divides_the_step(
    gpu, flags, world, sharded, B, card, monkeypatch
):
    card(gpu)
    monkeypatch.setattr(ranks, "WORLD", world)
    assert ranks.parse("", flags, sharded).batch_size == B


def test_a_model_with_a_loss_of_nan_is_not_the_best(tmp_path):
    job = ranks.Job(1, 1, {}, tmp_path, checkpoint=None, best=math.inf)
    run = SimpleNamespace(print0=print, args=SimpleNamespace(seq_len=64))
    job.validated(run, step=1, model=None, val_loss=math.nan)
    assert job.best == math.inf
    assert not (tmp_path / weights.BEST).exists()
