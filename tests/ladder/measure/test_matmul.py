"""matmul.py: the rates of a device."""

import json
from types import SimpleNamespace

import torch

from ladder.checkout import ROOT
from ladder.measure import matmul
from ladder.measure.rounds import large_matmul


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = large_matmul(["--device=cpu"], ROOT)
    assert measured.keys() >= {"peak_flops", "copy_bytes_per_s"}
    assert min(measured.values()) > 1e6


def test_a_rate_is_a_count_over_the_least_time(monkeypatch):
    """Of a machine that others use during four of five measurements."""
    times = SimpleNamespace(times=[0.75, 0.5, 0.25, 1, 1], median=0.75)
    timer = SimpleNamespace(blocked_autorange=lambda min_run_time: times)
    monkeypatch.setattr(matmul, "Timer", lambda *_, **__: timer)
    monkeypatch.setattr(matmul, "COPIED", 100)
    assert matmul.matmul_flops(torch.device("cpu"), torch.float32, 10) == 2 * 10**3 / 0.25
    assert matmul.copy_rate() == 2 * 100 / 0.25


def test_fp32_is_timed_once_where_it_is_half_precision_too(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["matmul.py", "--device=cpu"])
    monkeypatch.setattr(matmul, "least_seconds", lambda _: 1)
    for dtype, timed in {"float32": 2, "bfloat16": 3}.items():
        monkeypatch.setattr(matmul, "half_precision", lambda _, dtype=dtype: getattr(torch, dtype))
        matmul.main()
        assert len(json.loads(capsys.readouterr().out)) == timed
