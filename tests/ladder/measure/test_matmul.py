"""matmul.py: the rate of a large matmul."""

import time

import torch

from ladder.files import ROOT
from ladder.measure import matmul, rounds


def test_a_matmul_is_timed_after_a_warm_up(monkeypatch):
    monkeypatch.setattr(matmul, "SECONDS", 0.1)
    started = time.perf_counter()
    matmul.matmul_flops(torch.device("cpu"), torch.float32, 8)
    assert time.perf_counter() - started >= 0.2


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = rounds.large_matmul(["--device=cpu"], ROOT)
    assert set(measured["rates"]) == {"peak_flops", "fp32_flops", "copy_bytes_per_s"}
    assert min(measured["rates"].values()) > 1e6
