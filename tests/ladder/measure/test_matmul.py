"""matmul.py: the rates of a device."""

import torch

from ladder.checkout import ROOT
from ladder.measure import matmul
from ladder.measure.process import large_matmul


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = large_matmul(["--device=cpu"], ROOT)
    assert set(measured) == {"peak_flops", "fp32_flops", "copy_bytes_per_s"}
    assert min(measured.values()) > 1e6


def test_a_rate_is_a_count_over_the_median_time(monkeypatch):
    monkeypatch.setattr(matmul, "median_seconds", lambda call: 0.5)
    monkeypatch.setattr(matmul, "COPIED", 100)
    assert matmul.matmul_flops(torch.device("cpu"), torch.float32, 10) == 2 * 10**3 / 0.5
    assert matmul.copy_rate() == 2 * 100 / 0.5
