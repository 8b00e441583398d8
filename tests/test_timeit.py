"""`ladder timeit`."""

import json

import torch

from ladder.commands import timeit
from ladder.commands.main import main
from ladder.measure.process import Finished


def test_timeit_times_each_cell_in_a_process_of_its_own(monkeypatch, capsys):
    monkeypatch.setattr(timeit, "PASSES", ["forward"])
    monkeypatch.setattr(timeit, "half_precision", lambda _: torch.float32)
    flags = ["--models=tiny", "--batch-size=1", "--steps=3", "--device=cpu"]
    assert main(["timeit", *flags]) == 0
    cells = [line.split() for line in capsys.readouterr().out.splitlines()[-2:]]
    assert cells[0][:4] == ["tiny", "forward", "fp32", "0"]
    assert cells[1][:4] == ["tiny", "forward", "fp32", "1"]
    for cell in cells:
        mean, std, median, low, high = map(float, cell[4:])
        assert low <= median <= high
        assert low <= mean <= high
        assert 0 <= std <= high - low + 0.1


def test_timeit_goes_on_after_a_cell_that_failed(monkeypatch, capsys):
    def run_cell(*words):
        if json.loads(words[-1])["pass"] == "backward":
            return Finished("", "", 2, "out of memory: [tiny]")
        return Finished("onednn_verbose,v1,info\n[10, 14, 15]\n", "", 0, None)

    monkeypatch.setattr(timeit, "run_python", run_cell)
    monkeypatch.setattr(timeit, "half_precision", lambda _: torch.bfloat16)
    assert main(["timeit", "--models", "tiny", "--device", "cpu"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("fp32 1 13.0 2.6 14.0 10.0 15.0") == 2
    assert said.count("backward fp32 1 out of memory: [tiny]") == 1
    monkeypatch.setattr(timeit, "PASSES", ["backward"])
    assert main(["timeit", "--models", "tiny", "--device", "cpu"]) == 1


def test_timeit_measures_the_pass_it_names(monkeypatch):
    """Each pass's clock covers its part alone; autocast covers the forward and no backward."""
    seen = []
    now = iter(range(1000))
    monkeypatch.setattr(timeit.time, "perf_counter", lambda: seen.append("clock") or next(now))
    enter = torch.autocast.__enter__

    def spied_enter(self):
        seen.append(f"autocast {self.fast_dtype}" if self._enabled else "plain")
        return enter(self)

    backward = torch.Tensor.backward

    def spied_backward(self):
        seen.append(f"backward {torch.is_autocast_enabled('cpu')}")
        backward(self)

    monkeypatch.setattr(timeit, "half_precision", lambda _: torch.bfloat16)
    monkeypatch.setattr(torch.autocast, "__enter__", spied_enter)
    monkeypatch.setattr(torch.Tensor, "backward", spied_backward)
    cell = {"model": "tiny", "B": 1, "T": 4, "vocab_size": 8, "steps": 2, "device": "cpu"}

    def steps(passes, precision, warmup):
        seen.clear()
        times = timeit.measure({**cell, "pass": passes, "precision": precision, "warmup": warmup})
        assert len(times) == 2
        return seen

    autocast = "autocast torch.bfloat16"
    assert steps("forward", "autocast", 0) == ["clock", autocast, "clock"] * 2
    assert steps("backward", "fp32", 0) == ["plain", "clock", "backward False", "clock"] * 2
    both = ["clock", autocast, "backward False", "clock"]
    assert steps("forward+backward", "autocast", 1) == both * 3
