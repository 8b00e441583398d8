"""distributed.py: what ranks agree on."""

import pytest

from ladder import distributed
from ladder.errors import UsageError


def test_a_rank_with_another_pytorch_says_so(shard, monkeypatch):
    monkeypatch.setattr(distributed, "on_rank_0", lambda here: here() and "torch 2.9.0")
    with pytest.raises(
        UsageError, match=r"this rank has .*; rank 0 torch 2.9.0: give every machine"
    ):
        distributed.load_text(str(shard), print)
