"""Bad input gets one line on stderr and status 2; a run that is cut short loses nothing."""

import errno
import math
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from conftest import ROOT, SMALL, closed_pipe, load, rung

from ladder.cli import MODELS, parse_args
from ladder.commands import main as command
from ladder.errors import explain
from ladder.files import write_atomic
from ladder.log import read_log
from ladder.run import Run


def fails(capsys, *flags):
    """Run main() with flags that make no sense; returns what it says on stderr."""
    with pytest.raises(SystemExit, match="2"):
        load(rung(0)).main([str(flag) for flag in flags])
    (line,) = capsys.readouterr().err.splitlines()
    return line


def the_log(folder):
    (path,) = folder.glob("*.log")
    return path


@pytest.fixture
def ends(shard, tmp_path, small_model):
    """ends(module, status, *flags): its main() ends with this status. Returns the log."""

    def run(module, status, *flags):
        with pytest.raises(SystemExit, match=f"^{status}$"):
            module.main([*SMALL, "--data", str(shard), "--log-dir", str(tmp_path), *flags])
        return read_log(the_log(tmp_path))

    return run


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--device", "cuda:64"], "--device cuda:64: PyTorch finds no such GPU here; try"),
        (["--device", "tpu"], "--device tpu: expected cpu, cuda, cuda:N or mps"),
        (["--seq-len", "1025"], "--seq-len 1025 is longer than GPT-2's 1024 positions"),
        (["--steps", "0"], "--steps: expected an integer of at least 1, got 0"),
        (["--stpes", "3"], "unrecognized arguments: --stpes 3"),
        ([*SMALL, "--data", "/no/a\n\x1b.bin"], r"cannot read /no/a\n\x1b.bin: No such file"),
        ([*SMALL, "--log-dir", "/dev/null/logs"], "error /dev/null/logs: Not a directory"),
    ],
)
def test_flags_that_make_no_sense(capsys, tmp_path, flags, words):
    if "--log-dir" not in flags:
        flags = [*flags, "--log-dir", tmp_path]
    assert words in fails(capsys, *flags)


def test_copies_that_torchrun_starts_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    said = fails(capsys, *SMALL, "--log-dir", tmp_path)
    assert said.endswith("copies of baseline.py: for several GPUs use ddp_run.py")


@pytest.mark.parametrize(
    ("trouble", "status", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGTERM), 143, ""),
        (lambda: os.listdir("/no/folder"), 2, "error /no/folder: No such file or directory\n"),
        (lambda: print("über", file=sys.stdout), 0, ""),
    ],
)
def test_a_command_ends_in_a_line(trouble, status, said, capsys, monkeypatch):
    sys.stdout.reconfigure(encoding="ascii")
    monkeypatch.setattr("ladder.commands.diff.run", lambda args: trouble())
    assert command.main(["diff", "5"]) == status
    assert capsys.readouterr().err == said
    with pytest.raises(ZeroDivisionError):  # a bug keeps its traceback
        command.program(lambda: 1 / 0)


def test_a_command_that_nobody_can_read():
    command = f"{sys.executable} -m ladder diff 5 > /dev/full"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    said = "error standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_bad_corpus_is_in_the_log_too(bytes_for_tokens, capsys, tmp_path):
    (tmp_path / "empty.txt").touch()
    line = fails(capsys, *SMALL, "--data", tmp_path / "empty.txt", "--log-dir", tmp_path)
    assert "corpus empty has 0 tokens" in line
    assert line in the_log(tmp_path).read_text().splitlines()


def test_what_the_machine_refuses_is_said_in_a_line():
    assert explain(OSError(errno.ENOSPC, "No space")) == "the system: No space"
    # Most likely a mistake in a script, which keeps its traceback.
    assert explain(FileNotFoundError(errno.ENOENT, "No such file", "/x")) is None


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space as Linux does")
def test_out_of_memory(capsys, ends):
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, limits[1]))
    try:
        assert ends(load(rung(0)), 2, "--batch-size=512").result["status"] == "failed"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert capsys.readouterr().err.startswith("error out of memory: try a smaller --batch-size")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def full(file):
        file.write(b"new")
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a"
    write_atomic(path, b"old")
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(path, full)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_loss_that_is_not_finite_stops_the_run(capsys, ends):
    module = load(rung(0))
    module.LEARNING_RATE = math.inf
    log = ends(module, 1)
    assert "error the loss of step 2 is nan: stopped" in capsys.readouterr().err
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
    # Every line printed is in the log, without the time left.
    screen, left = re.subn(r" \| left \d+:\d\d:\d\d$", "", out, flags=re.MULTILINE)
    assert left == 2 and the_log(tmp_path).read_text() == screen


def test_under_nohup_a_closed_terminal_stops_nothing(run_main, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    write = Run._write

    def hang_up(*words):
        os.kill(os.getpid(), signal.SIGHUP)
        write(*words)

    monkeypatch.setattr(Run, "_write", hang_up)
    try:
        assert len(run_main(load(rung(0)), "--steps", 3).steps) == 3
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("full", ["log", "screen"])
def test_a_full_disk_costs_only_what_is_on_it(full, capsys, tmp_path, monkeypatch, run_main):
    device = open("/dev/full", "w")  # noqa: SIM115
    if full == "log":
        monkeypatch.setattr(Run, "_open_log", lambda self: device)
    else:
        monkeypatch.setattr(sys, "stdout", device)
    with pytest.raises(SystemExit, match="2"):
        run_main(load(rung(0)), "--steps=4")
    out, err = capsys.readouterr()
    assert err.startswith("error cannot write /dev/full: No space left on device")
    kept = out if full == "log" else the_log(tmp_path / "runs").read_text()
    assert err.count("\n") == 1
    assert kept.count("\nstep ") == 4 and '"status": "ok"' in kept


def test_where_nobody_reads_the_result_is_in_the_log(monkeypatch, capsys, ends):
    monkeypatch.setattr(sys, "stdout", closed_pipe())
    assert ends(load(rung(0)), 130).result["status"] == "interrupted"
    assert not capsys.readouterr().err


def test_a_mistake_in_a_script_keeps_the_steps_done(tmp_path, monkeypatch, ends):
    module = load(rung(9))
    monkeypatch.setattr(torch, "compile", lambda model: model)
    module.get_lr = lambda step, steps: 1e-4 if step < 2 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        ends(module, None)
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "failed" and len(log.steps) == 2


def test_the_command_line_is_frozen():
    args = parse_args("doc", ["--device", "cpu"])
    assert vars(args) == {
        "model": "gpt2",
        **{"steps": 20, "batch_size": 4, "seq_len": 256, "seed": 1337},
        **{"device": torch.device("cpu"), "data": None, "log_dir": "runs"},
    }
    heads = {"tiny": 32, "gpt2": 64, "gpt2-medium": 64, "gpt2-large": 64, "gpt2-xl": 64}
    assert {name: size["n_embd"] / size["n_head"] for name, size in MODELS.items()} == heads


def test_no_compiler_where_torch_compile_needs_one(capsys, tmp_path, monkeypatch, ends):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with torch._inductor.config.patch({"cpp.cxx": (None, str(tmp_path / "c++"))}):
        ends(load(rung(5)), 2)
    assert capsys.readouterr().err.startswith("error torch.compile found no working compiler")
