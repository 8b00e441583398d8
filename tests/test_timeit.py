"""`ladder timeit`."""

import io
import json
import re
import statistics
import time

import pytest
import torch
from rich.console import Console

from ladder.commands import main, timeit
from ladder.commands.process import Finished, if_slow


@pytest.fixture
def ladder(capsys):
    """ladder(words…): exit status, stdout and stderr of the command, run in this process."""
    return lambda *words: (main([str(word) for word in words]), *capsys.readouterr())


def test_timeit_writes_what_it_shows(ladder, tmp_path, monkeypatch):
    """Each cell is a process of its own."""
    monkeypatch.setattr(timeit, "PRECISIONS", ["autocast"])
    monkeypatch.setattr(timeit.machine, "load", lambda: 1e3)
    words = ("--models", "tiny", "--passes", "forward", "--vocab-size", 500, "--steps", 3)
    status, said, _ = ladder("timeit", *words, "--device", "cpu", "--out", tmp_path / "out")
    assert status == 0 and said.startswith("note  load 1000.0 on "), said
    assert re.search(r"\ncell 1 of 2: tiny forward autocast 0 \d+\.\d\d ms, about ", said)
    found = json.loads((tmp_path / "out" / "timeit.json").read_text())
    assert (found["B"], found["T"], found["vocab_size"], found["steps"]) == (2, 64, 500, 3)
    assert [cell["warmup"] for cell in found["cells"]] == [0, 1]
    for times in (cell["times_ms"] for cell in found["cells"]):
        numbers = [statistics.mean(times), statistics.stdev(times), statistics.median(times)]
        numbers += [sum(times), min(times), max(times)]
        assert len(times) == 3
        assert re.search("│ *".join(f"{number:.2f}" for number in numbers), said)


def test_timeit_goes_on_after_a_cell_that_failed(ladder, tmp_path, monkeypatch):
    def run_cell(*words):
        cell = json.loads(words[-1])
        if cell["pass"] == "backward":
            return Finished("", "", 2, "out of memory: [tiny]")
        return Finished("onednn_verbose,v1,info\n[10, 14]\n", "", 0, None)

    monkeypatch.setattr(timeit, "run_python", run_cell)
    words = ("--models", "tiny", "--passes", "backward", "forward", "--device", "cpu")
    status, said, _ = ladder("timeit", *words, "--out", tmp_path / "out")
    assert status == 0
    shown = [re.split(" *│ *", line)[1:5] for line in said.splitlines() if "│" in line]
    order = [["backward", "failed"]] * 4 + [["forward", "12.00"]] * 4  # as the columns say
    assert [[row[0], row[3]] for row in shown] == order
    assert "cell 2 of 8: tiny backward fp32 1 out of memory: [tiny], about " in said
    status, *_ = ladder("timeit", *words[:4], "--out", tmp_path / "none")
    assert status == 1  # not one was timed


def test_a_timeit_that_is_killed_keeps_the_cells_done(ladder, tmp_path, monkeypatch):
    def run_cell(*_):
        if (tmp_path / "out" / "timeit.json").exists():
            raise SystemExit  # so that nothing is written after it
        return Finished("[1, 2]", "", 0, None)

    monkeypatch.setattr(timeit, "run_python", run_cell)
    with pytest.raises(SystemExit):
        ladder("timeit", "--device", "cpu", "--out", tmp_path / "out")
    assert len(json.loads((tmp_path / "out" / "timeit.json").read_text())["cells"]) == 1


def test_on_80_columns_timeit_leaves_columns_out():
    cell = {"model": "gpt2-medium", "pass": "forward+backward", "precision": "autocast"}
    facts = dict(device="CPU", torch="2", B=2, T=64, vocab_size=10_000, steps=2)
    facts["cells"] = [{**cell, "warmup": 1, "times_ms": [1000.0, 1001.0]}]
    for width, last in ((80, "total"), (100, "max")):
        console = Console(width=width, file=io.StringIO())
        timeit.report(facts, console)
        assert re.search(r"┃ *(\w+)\n", console.file.getvalue())[1] == last
        assert len(re.findall("^gpt2.*│.*│.*│", console.file.getvalue(), re.MULTILINE)) == 1


def test_imports_are_told_where_they_are_slow(capsys):
    with if_slow(after=60):
        pass
    assert capsys.readouterr().err == ""
    with if_slow(after=0.01):
        time.sleep(0.5)
    assert capsys.readouterr().err.startswith("note  importing PyTorch")


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
