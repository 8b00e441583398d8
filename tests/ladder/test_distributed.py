"""distributed.py: what ranks agree on."""

from types import SimpleNamespace

import pytest

from ladder import distributed
from ladder.errors import UsageError


def test_a_rank_with_another_pytorch_says_so(shard, monkeypatch):
    monkeypatch.setattr(distributed, "on_rank_0", lambda *_: "torch 2.9.0")
    args = SimpleNamespace(data=str(shard), batch_size=1, seq_len=64, eval_every=1)
    with pytest.raises(UsageError, match=r"this rank has .*; rank 0 torch 2.9.0: give every"):
        distributed.load_text(args, print)
