"""matmul.py: the rate of a large matmul."""

import time

import torch

from ladder.measure import matmul


def test_a_matmul_is_timed_after_a_warm_up(monkeypatch):
    monkeypatch.setattr(matmul, "WARMUP_SECONDS", 0.2)
    started = time.perf_counter()
    matmul.warm_up(torch.ones(8, 8))
    assert time.perf_counter() - started >= 0.2
