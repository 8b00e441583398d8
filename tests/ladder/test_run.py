"""run.py: what a run logs; one that is cut short loses nothing."""

import math
import os
import re
import signal
import statistics
import time
from pathlib import Path

import pytest
from helpers import SMALL, fails, load, rung

from ladder import machine, probe
from ladder.checkout import ROOT
from ladder.cli import MODELS
from ladder.log import read_log
from ladder.output import Output
from ladder.result import Result

TRAIN = ["--no-compile", "--total-batch=256", "--eval-every=0", "--ckpt-every=0"]


def test_result_is_that_of_the_steps_after_the_warm_up():
    times, losses = [9.0, 2.0, 0.1, 0.3, 0.7], [11.0, 10.0, 9.0, 8.0, math.nan]
    assert Result(times, losses, 3, 1000, 3e9, peak_flops=1e13, devices=2).numbers() == {
        **{"median_ms": 300, "p10_ms": 140, "p90_ms": 620, "first_step_ms": 9000},
        **{"measured_steps": 3, "warmup_steps": 2},
        **{"tok_per_s": 3333.333333, "mfu": 0.5},
        **{"first_loss": 11.0, "final_loss": None},
    }


def test_result_follows_from_the_step_lines(run_main, monkeypatch):
    """256 tokens a step of the first 90 % of the text: 1406 rows, 15 tokens dropped."""
    monkeypatch.setattr(machine, "peak_flops", lambda _: 1e11)
    log = run_main(load(ROOT / "train.py"), "--steps", 7, *TRAIN)
    found = log.result
    times = [step.dt_ms for step in log.steps]  # ms, to two digits
    assert found["median_ms"] == pytest.approx(statistics.median(times[2:]), abs=0.01)
    assert found["tok_per_s"] * found["median_ms"] == pytest.approx(256e3, rel=0.01)

    # SMALLER has 2 layers, C = 64 and 256 words; the blocks, the last norm, and the head once.
    blocks = 2 * (12 * 64**2 + 13 * 64) + 2 * 64
    flops = 6 * (blocks + 256 * 64) + 12 * 2 * 64 * 64
    assert found["mfu"] == pytest.approx(flops * found["tok_per_s"] / 1e11, abs=1e-4)
    assert log.mfu["flops_per_token"] == flops
    assert log.run["params"] == blocks + 1024 * 64 + 256 * 64
    text = log.run["tokens"], log.run["epoch_batches"], log.run["dropped"]
    assert text == (90000, 351.5, "15")


def test_the_recording_of_a_step_holds_one_of_its_batches(run_main, monkeypatch):
    """Each takes 75 to 215 MB of memory with a real model; the optimizer is in it, too."""
    seen = []

    def operators(recording):
        seen.append(len(recording.profiler.kineto_results.events()))
        return real(recording)

    real = probe.operators
    monkeypatch.setattr(probe, "operators", operators)
    for batch in (256, 1024):
        log = run_main(load(ROOT / "train.py"), "--steps", 2, *TRAIN, f"--total-batch={batch}")
        assert log.effective["optimizer"] == "fused" and log.effective["attention"] == "flash"
    assert seen[0] == seen[1]


def test_a_run_of_one_step_is_no_measurement(run_main, monkeypatch):
    """The profile is one of the second step."""
    monkeypatch.setattr(machine, "throttled", iter([5, 7]).__next__)
    monkeypatch.setitem(MODELS, "gpt2", MODELS["tiny"])
    log = run_main(load(rung(0)), "--steps", 1, "--model", "gpt2")
    assert "the first step may take half a minute" in " ".join(log.notes)
    assert "throttled 2 times" in log.notes[-1]
    assert len(log.steps) == 1 and log.result["status"] == "ok"
    assert log.mfu["mfu"] == "unknown"  # of a CPU, and no guess
    assert "attention" not in log.effective and "not a measurement" in " ".join(log.notes)


def test_logs_in_order_of_their_names_are_in_order_of_time(run_main, tmp_path, monkeypatch):
    """As `ladder report` reads those of a run that was resumed on a machine elsewhere."""
    for zone in ("Asia/Tokyo", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        run_main(load(rung(0)), "--steps", 1)
    names = sorted(tmp_path.rglob("*.log"))
    assert names == sorted(names, key=os.path.getmtime)


@pytest.fixture
def ends(run_main, tmp_path):
    """ends(module, status): main() ends with this status. Returns the log as text, and parsed."""

    def run(module, status):
        with pytest.raises(SystemExit, match=f"^{status}$"):
            run_main(module)
        (path,) = tmp_path.rglob("*.log")
        return path.read_text(), read_log(path)

    return run


@pytest.mark.parametrize("name", machine.LAUNCHERS)
def test_copies_that_do_not_know_of_each_other_are_refused(name, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(name, "2")
    said = fails(capsys, *SMALL, "--log-dir", tmp_path)
    assert f"{name} is 2, but this would train alone" in said
    monkeypatch.setenv(name, "")  # is not set
    assert machine.started_with_others() is None


def test_loss_that_is_not_finite_stops_the_run(capsys, ends):
    module = load(rung(0))
    module.LEARNING_RATE = math.inf
    text, log = ends(module, 1)
    line = "error the loss of step 2 is nan: stopped\n"
    assert capsys.readouterr().err == line and line in text
    assert log.result["status"] == "not finite" and len(log.steps) == 2
    assert log.result["final_loss"] is None and math.isnan(log.steps[1].loss)


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_signal_keeps_the_steps_done(name, capsys, monkeypatch, ends):
    """Of a run without checkpoints, too. Here it comes as a step is written, and as RESULT is."""
    number = signal.Signals[name]
    write = Output._write

    def interrupted(self, out, line):
        if line.startswith("RESULT") or re.match("step    3/.*left", line):  # on the screen
            os.kill(os.getpid(), number)
        write(self, out, line)

    monkeypatch.setattr(Output, "_write", interrupted)
    text, log = ends(load(rung(0)), 128 + number)
    out, err = capsys.readouterr()
    assert err == "note  the run ends after this step; a second Ctrl-C ends it at once\n"
    assert log.result["status"] == "stopped" and len(log.steps) == 3
    assert log.notes[-2] == f"{name}: stopped after step 3; no checkpoint is kept"
    # Every line printed is in the log, without the time left.
    assert re.sub(r" \| left [\d:]+$", "", out, flags=re.MULTILINE) == text


@pytest.mark.parametrize(("steps", "done"), [([0], 0), ([1], 2), ([1, 1], 1), ([3], 4)])
def test_the_first_signal_ends_a_step_and_the_second_ctrl_c_does_not(steps, done, ends, run_main):
    """Nor does the first one in the first step, which may compile for minutes.

    `steps`: in which it comes. After the last one there is nothing to stop.
    """
    module = load(rung(0))
    forward = module.GPT.forward
    step = iter(range(4))

    def interrupted(*arguments):
        for _ in range(steps.count(next(step))):
            os.kill(os.getpid(), signal.SIGINT)
        return forward(*arguments)

    module.GPT.forward = interrupted
    if done == 4:
        assert run_main(module, "--steps", 4).result["status"] == "ok"
        return
    _, log = ends(module, 130)
    assert log.result["status"] == ("stopped" if done == 2 else "interrupted")
    assert len(log.steps) == done


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_costs_only_the_log(capsys, monkeypatch, run_main):
    device = open("/dev/full", "w")  # noqa: SIM115
    monkeypatch.setattr(Output, "open_log", lambda self, *_: self.logs.append(device))
    with pytest.raises(SystemExit, match="2"):
        run_main(load(rung(0)), "--steps=4")
    out, err = capsys.readouterr()
    why = "No space left on device: the run goes on without it"
    assert err == f"error cannot write /dev/full: {why}\n"
    assert out.count("\nstep ") == 4 and '"status": "ok"' in out


def test_a_mistake_in_a_script_keeps_the_steps_done(tmp_path, run_main):
    module = load(ROOT / "train.py")
    module.get_lr = lambda step, *_: 1e-4 / (2 - step)
    with pytest.raises(ZeroDivisionError):
        run_main(module, *TRAIN)
    (path,) = tmp_path.rglob("*.log")
    assert read_log(path).result["status"] == "failed" and len(read_log(path).steps) == 2
