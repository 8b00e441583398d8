"""run.py: what a run logs; one that is cut short loses nothing."""

import logging
import math
import os
import re
import signal
import statistics
import sys
from pathlib import Path

import pytest
import torch._inductor.config
from helpers import SMALL, closed_pipe, fails, load, rung

from ladder import machine, run
from ladder.files import ROOT
from ladder.log import read_log
from ladder.run import Run

DDP = ["--no-compile", "--total-batch=256", "--eval-every=0", "--ckpt-every=0"]


@pytest.mark.parametrize(
    ("script", "flags", "tokens_per_step", "data"),
    [
        # (100,000 - 1) // 64 = 1562 rows, 31 tokens dropped; two rows a batch.
        ("baseline.py", [], 128, {"tokens": 100_000, "epoch_batches": 781, "dropped": 31}),
        # Of the first 90 %: 1406 rows, 15 tokens dropped; four rows a step.
        ("ddp_run.py", DDP, 256, {"tokens": 90_000, "epoch_batches": 351.5, "dropped": 15}),
    ],
)
def test_result_follows_from_the_step_lines(
    script, flags, tokens_per_step, data, run_main, monkeypatch
):
    monkeypatch.setattr(machine, "peak_flops", lambda _: 1e11)
    log = run_main(load(ROOT / script), "--steps", 7, *flags)
    for step in log.steps:  # tokens per second, not per millisecond
        assert step["tok_per_s"] * step["dt_ms"] == pytest.approx(1e3 * tokens_per_step, rel=0.02)
    found = log.result
    times = [step["dt_ms"] for step in log.steps]  # ms, to two digits
    assert found["median_ms"] == pytest.approx(statistics.median(times[2:]), abs=0.01)
    assert found["tok_per_s"] * found["median_ms"] == pytest.approx(tokens_per_step * 1e3, rel=0.01)
    assert found["peak_bytes"] > 1e8

    # SMALLER has 2 layers, C = 64 and 256 words; the blocks, the last norm, and the head once.
    N = 2 * (12 * 64**2 + 13 * 64) + 2 * 64 + 256 * 64
    flops = 6 * N + 12 * 2 * 64 * 64
    assert found["mfu"] == pytest.approx(flops * found["tok_per_s"] / 1e11, abs=1e-4)
    assert float(log.mfu.pop("mfu")) == found["mfu"] > 0.001
    about = {"formula": "6N+12LCT", "flops_per_token": str(flops), "peak_flops": "1e+11"}
    assert log.mfu == about

    params = N + 1024 * 64
    if script == "baseline.py":  # its head is not tied to the embedding
        params += 256 * 64
    settings = {"B": 2, "T": 64, "seed": 1337, "params": params, "data": "topics"}
    for key, value in (settings | data).items():
        assert log.run[key] == str(value), key


@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_has_as_many_steps_as_it_was_asked_for(steps, run_main):
    """The profile is one of the second step, and the first two are not a measurement."""
    log = run_main(load(rung(0)), "--steps", steps)
    assert len(log.steps) == steps and log.result["status"] == "ok"
    assert log.mfu["mfu"] == "unknown"  # of a CPU, and no guess
    assert log.effective.get("attention") == (None if steps == 1 else "math")
    assert ("not a measurement" in " ".join(log.notes)) == (steps < 3)


def test_what_makes_the_result_doubtful_is_told_below_it(run_main, capsys, monkeypatch):
    """A step that took long, and a peak that the device exceeds; not in the log."""
    log = Run.log

    def slow(self, step, loss, dt, **more):
        log(self, step, loss, dt=60.0 if step == 5 else dt, **more)

    monkeypatch.setattr(Run, "log", slow)
    monkeypatch.setattr(machine, "peak_flops", lambda _: 1e6)
    notes = run_main(load(rung(0)), "--steps", 9).notes
    *_, result, _, step, mfu = capsys.readouterr().out.splitlines()
    assert result.startswith("RESULT ")
    assert step.startswith("note  one measured step took 60,000 ms, ")
    assert mfu.startswith("note  MFU is above 100 %")
    assert not any("MFU" in note or "60,000" in note for note in notes)
    assert "step 2, which is warm-up, runs under PyTorch's profiler: see `effective`" in notes


def test_a_terminal_gets_rows_of_its_width_and_no_json(run_main, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "on_screen", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert run_main(load(rung(0)), "--steps", 3).result["status"] == "ok"
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("step ")]
    assert len(rows) == 3 and max(map(len, rows)) <= 60
    assert "RESULT" not in "".join(lines) and lines[-2].startswith("baseline: ")
    assert lines[-1] == f"log: {the_log(tmp_path)}"


def test_pytorch_does_not_say_in_the_middle_of_a_run_that_there_is_no_gpu(run_main):
    """As torch.compile starts, where there is a CUDA toolkit: a warning of this logger."""
    extension = logging.getLogger("torch.utils.cpp_extension")
    extension.setLevel(logging.NOTSET)
    run_main(load(rung(0)), "--steps", 1)
    assert not extension.isEnabledFor(logging.WARNING)


def test_a_note_says_that_autocast_stays_off(run_main, monkeypatch):
    monkeypatch.setattr(machine, "_cpu_has_bf16", lambda: False)
    log = run_main(load(rung(3)), "--steps", 2)
    assert log.notes[0].startswith("autocast stays off: PyTorch knows of no bfloat16 units in")
    assert log.effective["autocast"] == "off"


def the_log(folder):
    (path,) = folder.rglob("*.log")
    return path


@pytest.fixture
def ends(run_main, tmp_path):
    """ends(module, status): its main() ends with this status. Returns the log."""

    def run(module, status):
        with pytest.raises(SystemExit, match=f"^{status}$"):
            run_main(module)
        return read_log(the_log(tmp_path))

    return run


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_copies_that_do_not_know_of_each_other_are_refused(name, capsys, tmp_path, monkeypatch):
    """As torchrun, srun and mpirun start them."""
    monkeypatch.setenv(name, "2")
    said = fails(capsys, *SMALL, "--log-dir", tmp_path)
    assert f"{name} is 2, but baseline.py would train alone: unset it, or start ddp_run" in said


def test_loss_that_is_not_finite_stops_the_run(capsys, tmp_path, ends):
    module = load(rung(0))
    module.LEARNING_RATE = math.inf
    log = ends(module, 1)
    line = "error the loss of step 2 is nan: stopped\n"
    assert capsys.readouterr().err == line and line in the_log(tmp_path).read_text()
    assert log.result["status"] == "not finite" and len(log.steps) == 2
    assert log.result["final_loss"] is None and math.isnan(log.steps[1]["loss"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_signal_keeps_the_steps_done(name, capsys, tmp_path, monkeypatch, ends):
    """Here it comes as a step is written, and again as RESULT is."""
    number = signal.Signals[name]
    write = Run._write

    def interrupted(self, out, line):
        if line.startswith(("step    3/", "RESULT")):
            os.kill(os.getpid(), number)
        write(self, out, line)

    monkeypatch.setattr(Run, "_write", interrupted)
    log = ends(load(rung(0)), 128 + number)
    out, err = capsys.readouterr()
    assert not err and log.result["status"] == "interrupted" and len(log.steps) == 3
    assert "not a measurement: 3 of 20 steps are done, all of them warm-up" in log.notes
    # Every line printed is in the log, without the time left.
    screen, left = re.subn(r" \| left \d+s$", "", out, flags=re.MULTILINE)
    assert left == 2 and the_log(tmp_path).read_text() == screen


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_costs_only_the_log(capsys, monkeypatch, run_main):
    device = open("/dev/full", "w")  # noqa: SIM115
    monkeypatch.setattr(Run, "_open_log", lambda self: device)
    with pytest.raises(SystemExit, match="2"):
        run_main(load(rung(0)), "--steps=4")
    out, err = capsys.readouterr()
    assert err.startswith("error cannot write /dev/full: No space left on device")
    assert err.count("\n") == 1
    assert out.count("\nstep ") == 4 and '"status": "ok"' in out


def test_where_nobody_reads_the_result_is_in_the_log(monkeypatch, capsys, ends):
    monkeypatch.setattr(sys, "stdout", closed_pipe())
    assert ends(load(rung(0)), 130).result["status"] == "interrupted"
    assert not capsys.readouterr().err


def test_a_mistake_in_a_script_keeps_the_steps_done(tmp_path, run_main):
    module = load(ROOT / "ddp_run.py")
    module.get_lr = lambda step, *_: 1e-4 if step < 2 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        run_main(module, *DDP)
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "failed" and len(log.steps) == 2


def test_no_compiler_where_torch_compile_needs_one(capsys, tmp_path, monkeypatch, ends):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with torch._inductor.config.patch({"cpp.cxx": (None, str(tmp_path / "c++"))}):
        ends(load(rung(5)), 2)
    assert capsys.readouterr().err.startswith("error torch.compile found no working compiler")
