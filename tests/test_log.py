"""The log format, written and read back; what is not a whole log is refused by name."""

import errno
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT, load, rung

from ladder import machine, probe
from ladder.commands.log import read_log
from ladder.commands.scripts import number_of
from ladder.errors import BadInput
from ladder.log import pairs_line, step_line
from ladder.run import Run, flops_per_token

KEYS = {
    "script", "status", "median_ms", "p10_ms", "p90_ms", "measured_steps", "warmup_steps",
    "tok_per_s", "mfu", "peak_bytes", "first_step_ms", "first_loss", "final_loss",
}  # fmt: skip


def test_lines_survive_a_round_trip(tmp_path):
    path = tmp_path / "a.log"
    lines = [
        pairs_line("run", {"device": "NVIDIA H100 80GB HBM3", "data": 'a "b" \\ c', "B": 16}),
        "note  downloading",
        step_line(19, 50, loss=6.123456, dt=0.09831, tok_per_s=166657.3, norm=1.5, lr=6e-4),
        pairs_line("effective", {"matmul": "high(setting)", "autocast": "bfloat16"}),
        'RESULT {"median_ms": 98.31}',
    ]
    assert lines[2] == (
        "step   20/50 | loss 6.123456 | dt    98.31 ms | tok/s  166657"
        " | norm 1.5000e+00 | lr 6.0000e-04"
    )
    path.write_text("\n".join(lines))
    log = read_log(path)
    assert log.run == {"device": "NVIDIA H100 80GB HBM3", "data": 'a "b" \\ c', "B": "16"}
    assert log.effective == {"matmul": "high(setting)", "autocast": "bfloat16"}
    (step,) = log.steps
    assert step.pop("dt") == pytest.approx(0.09831)
    assert step == {"step": 20, "loss": 6.123456, "tok_per_s": 166657, "norm": 1.5, "lr": 6e-4}
    assert log.result == {"median_ms": 98.31} and log.notes == ["downloading"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no run line"),
        ("hello\n", "is not a log of this ladder: line 1: 'hello'"),
        ("run   B=1\nstep 1/2 | loss x | dt 1 ms | tok/s 1\n", "line 2"),
        ("run   B=1\nstep    1/2 | loss 1.0 | dt 1.0 ms | tok/s 5\n", "cut short"),
        ('run   B=1\nRESULT {"median_ms": 98.3', "line 2"),
        (f"run   B={'1' * 20_000}\n", "line 1"),  # it would take minutes
    ],
)
def test_foreign_or_cut_logs_are_refused_by_name(tmp_path, text, words):
    path = tmp_path / "some.log"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_log(path)
    assert str(path) in str(caught.value) and words in str(caught.value)


def test_numbers_of_a_real_log_agree_with_each_other(run_main, capsys, monkeypatch):
    monkeypatch.setattr(machine, "load", lambda: 6.14)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    log = run_main(load(rung(0)), "--steps", 6)
    B, T = int(log.run["B"]), int(log.run["T"])
    assert set(log.result) == KEYS
    assert [step["step"] for step in log.steps] == list(range(1, 7))
    for step in log.steps:  # tokens per second, not per millisecond
        assert step["tok_per_s"] == pytest.approx(B * T / step["dt"], rel=1e-3, abs=0.51)
    result = log.result
    assert result["warmup_steps"] == 2 and result["measured_steps"] == 4
    times = sorted(step["dt"] * 1e3 for step in log.steps[2:])
    assert result["median_ms"] == pytest.approx((times[1] + times[2]) / 2, abs=0.02)
    assert (
        times[0] <= result["p10_ms"] <= result["median_ms"] <= result["p90_ms"] <= times[3] + 0.02
    )
    assert result["tok_per_s"] == pytest.approx(B * T / result["median_ms"] * 1e3, rel=1e-3)
    assert result["first_loss"] == pytest.approx(log.steps[0]["loss"], abs=1e-6)
    assert result["final_loss"] == pytest.approx(log.steps[-1]["loss"], abs=1e-6)
    assert result["mfu"] is None and log.mfu["mfu"] == "unknown"  # no CPU is in the table
    assert result["peak_bytes"] > 1e8
    assert log.run["params"] == "13790208" and log.run["data"] == "topics"
    assert log.notes[0] == "load 6.1 on 2 cores: these times will mean little"
    assert not [note for note in log.notes if "commit" in note]

    *_, result_line, last = (out := capsys.readouterr().out).splitlines()
    assert result_line.startswith("RESULT ") and "\nmfu " not in out
    assert re.fullmatch(
        rf"00 baseline: {result['tok_per_s']:,.0f} tok/s, [\d,.]+ ms a step \(4 of 6 steps measured"
        rf"\), \d\.\d GB, loss {result['first_loss']:.2f} -> {result['final_loss']:.2f}; "
        "next: ladder diff 1",
        last,
    )
    page = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    of_steps = ("loss", "dt", "tok/s", "norm", "lr", "left", "total_batch", "ranks")
    keys = [*log.run, *log.effective, *log.mfu, *result, "compile_cache", *of_steps]
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_a_copy_of_the_screen_is_a_log_too(tmp_path):
    text = "run   B=1\nstep    1/2 | loss 1.0 | dt 1.0 ms | tok/s 5 | left 2 min\n"
    (tmp_path / "a.log").write_text(text + 'RESULT {"mfu": null}\n00 baseline: 5 tok/s\n')
    assert read_log(tmp_path / "a.log").result == {"mfu": None}


def test_a_copy_of_a_script_does_not_pass_for_its_commit(run_main, tmp_path):
    copy = shutil.copy(rung(0), tmp_path)
    log = run_main(load(Path(copy)), "--steps", 1)
    assert "baseline.py is not in that commit: only what it imports is" in log.notes


def test_a_rung_in_which_nothing_is_compiled_says_so(run_main, monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    log = run_main(load(rung(5)), "--steps", 3)
    assert log.effective["compiled"] == "no"
    assert "TORCHDYNAMO_DISABLE=1: torch.compile does nothing" in log.notes
    assert not any("compiling" in note for note in log.notes)


def test_a_name_that_begins_with_other_digits_has_no_number(run_main, tmp_path, capsys):
    """int() refuses them."""
    copy = shutil.copy(rung(0), tmp_path / "\u00b2\u00b3_mine.py")
    run_main(load(copy), "--steps", 3)
    assert "-> " in (last := capsys.readouterr().out.splitlines()[-1]) and "next:" not in last
    assert number_of(copy) == 0


def test_peak_memory_that_linux_does_not_count_is_unknown(run_main, monkeypatch, capsys):
    """gVisor, under many clouds' containers, has no VmHWM in /proc/self/status."""
    read = Path.read_text
    cut = lambda self, *a, **k: read(self, *a, **k).replace("VmHWM", "Vm")  # noqa: E731
    monkeypatch.setattr(Path, "read_text", cut)
    assert run_main(load(rung(0)), "--steps", 3).result["peak_bytes"] is None
    assert " measured), loss " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("times", "steps", "said"),
    [
        ([9, 1, 3, 1], 50, " | left 46 s"),
        ([9, 1], 600, " | left 10 min"),
        ([9, 60], 602, " | left 10.0 h"),
        ([9], 5, ""),  # it compiled
        ([9, 1], 2, ""),
    ],
)
def test_the_time_left_is_that_of_the_last_steps(times, steps, said):
    run = Run("baseline.py", SimpleNamespace(steps=steps))
    run.step_times = times
    assert run._time_left() == said


def test_a_compiled_model_says_that_it_will_take_long(run_main, monkeypatch):
    mark = lambda model: setattr(model, "_orig_mod", None) or model  # noqa: E731
    monkeypatch.setattr(torch, "compile", mark)
    told = [run_main(load(rung(n)), "--steps", 1).notes for n in (4, 5)]
    assert ["compiling: the first step takes" in " ".join(notes) for notes in told] == [False, True]


def test_flops_per_token_of_the_124m_model():
    for number, vocabulary in ((0, 50257), (1, 50257), (10, 50304)):
        module = load(rung(number))
        with torch.device("meta"):
            model = module.GPT(module.GPTConfig())
        blocks = 12 * (12 * 768**2 + 13 * 768) + 2 * 768
        N = blocks + vocabulary * 768
        assert flops_per_token(model, 1024) == 6 * N + 12 * 12 * 768 * 1024


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L40", None),
        ("NVIDIA A10G", None),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3080", 59.5e12),
        ("NVIDIA GeForce RTX 3080 Ti", None),
        ("NVIDIA RTX 6000 Ada Generation", 364.2e12),
        ("NVIDIA B300 SXM6 AC", 2250e12),
        ("AMD Instinct MI300X", 1307.4e12),
        ("AMD Instinct MI250X / MI250", None),  # either
        ("AMD EPYC (2 threads)", None),
    ],
)
def test_peak_rates_are_found_by_whole_words(name, peak, monkeypatch):
    monkeypatch.setattr(machine, "device_name", lambda device: name)
    assert machine.peak_flops(torch.device("cuda")) == peak


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
def test_no_file_stays_open_where_no_more_can_be_opened(monkeypatch):
    def full(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("builtins.open", full)
    monkeypatch.setattr("os.open", full)
    with pytest.raises(OSError, match="Too many"):
        probe.start()
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before
