"""`ladder timeit`."""

import json
import re
import statistics

import torch

from ladder.commands import main, timeit
from ladder.commands.process import Finished


def test_timeit_writes_what_it_shows(tmp_path, monkeypatch, capsys):
    """Each cell is a process of its own."""
    monkeypatch.setattr(timeit, "PRECISIONS", ["autocast"])
    monkeypatch.setattr(timeit.machine, "load", lambda: 1e3)
    words = "timeit --models tiny --passes forward --vocab-size 500 --steps 3 --device cpu --out"
    assert main([*words.split(), str(tmp_path / "out")]) == 0
    assert (said := capsys.readouterr().out).startswith("note  load 1000.0 on "), said
    assert re.search(r"\ncell 1 of 2: tiny forward autocast 0 \d+\.\d\d ms, about ", said)
    found = json.loads((tmp_path / "out" / "timeit.json").read_text())
    assert (found["B"], found["T"], found["vocab_size"], found["steps"]) == (2, 64, 500, 3)
    assert [cell["warmup"] for cell in found["cells"]] == [0, 1]
    for times in (cell["times_ms"] for cell in found["cells"]):
        numbers = [statistics.mean(times), statistics.stdev(times), statistics.median(times)]
        numbers += [sum(times), min(times), max(times)]
        assert len(times) == 3
        assert re.search("│ *".join(f"{number:.2f}" for number in numbers), said)


def test_timeit_goes_on_after_a_cell_that_failed(tmp_path, monkeypatch, capsys):
    def run_cell(*words):
        cell = json.loads(words[-1])
        if cell["precision"] == "autocast":
            assert (tmp_path / "out" / "timeit.json").exists()  # a kill keeps the cells done
        if cell["pass"] == "backward":
            return Finished("", "", 2, "out of memory: [tiny]")
        return Finished("onednn_verbose,v1,info\n[10, 14]\n", "", 0, None)

    monkeypatch.setattr(timeit, "run_python", run_cell)
    words = "timeit --models tiny --passes forward backward --device cpu --out"
    assert main([*words.split(), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    shown = [re.split(" *│ *", line)[1:5] for line in said.splitlines() if "│" in line]
    order = [["backward", "failed"]] * 4 + [["forward", "12.00"]] * 4  # as the columns say
    assert [[row[0], row[3]] for row in shown] == order
    assert "cell 6 of 8: tiny backward fp32 1 out of memory: [tiny], about " in said


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
