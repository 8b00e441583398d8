"""matmul.py: the rates of a device."""

import json
from types import SimpleNamespace

import pytest
import torch

from ladder.checkout import ROOT
from ladder.machine import half_precision
from ladder.measure import matmul
from ladder.measure.process import large_matmul


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = large_matmul(["--device=cpu"], ROOT)
    names = {"peak_flops", "copy_bytes_per_s"}
    if half_precision(torch.device("cpu")) != torch.float32:
        names.add("fp32_flops")
    assert set(measured) == names
    assert min(measured.values()) > 1e6


class FakeTimer:
    """A Timer of a machine that others use during four of five measurements."""

    def __init__(self, *_: object, **__: object):
        pass

    def blocked_autorange(self, min_run_time):
        return SimpleNamespace(times=[0.75, 0.5, 0.25, 1, 1], median=0.75)


def test_a_rate_is_a_count_over_the_least_time(monkeypatch):
    monkeypatch.setattr(matmul, "Timer", FakeTimer)
    monkeypatch.setattr(matmul, "COPIED", 100)
    assert matmul.matmul_flops(torch.device("cpu"), torch.float32, 10) == 2 * 10**3 / 0.25
    assert matmul.copy_rate() == 2 * 100 / 0.25


@pytest.mark.parametrize(("dtype", "timed"), [("float32", 1), ("bfloat16", 2)])
def test_where_half_precision_is_float32_one_matmul_is_timed(dtype, timed, monkeypatch, capsys):
    rates = iter([1e12, 2e11])
    monkeypatch.setattr("sys.argv", ["matmul.py", "--device=cpu"])
    monkeypatch.setattr(matmul, "half_precision", lambda _: getattr(torch, dtype))
    monkeypatch.setattr(matmul, "matmul_flops", lambda *_: next(rates))
    monkeypatch.setattr(matmul, "copy_rate", lambda: 2e10)
    matmul.main()
    found = json.loads(capsys.readouterr().out)
    assert found.pop("copy_bytes_per_s") == 2e10
    assert [*found.values()] == [1e12, 2e11][:timed]
