"""Bad input gets one line on stderr and status 2; a run that is cut short loses nothing."""

import argparse
import errno
import importlib
import math
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._inductor.config
from conftest import ROOT, SMALL, hear_ctrl_c, load, run_script, rung

from ladder import commands, files, ranks, run
from ladder.cli import MODELS, add_flags, parse_args
from ladder.commands.log import read_log
from ladder.errors import explain
from ladder.run import Run
from ladder.shards import write_shard


def fails(capsys, *flags, number=0):
    """Run main() with flags that make no sense; returns what it says on stderr."""
    with pytest.raises(SystemExit, match="2"):
        load(rung(number)).main([str(flag) for flag in flags])
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if not line.startswith(("usage:", " "))]
    assert len(lines) == 1, err
    return lines[0]


def the_log(folder):
    (path,) = folder.glob("*.log")
    return path


def test_the_command_line_is_frozen():
    args = parse_args("doc", ["--device", "cpu"])
    assert vars(args) == {
        "model": "gpt2",
        **{"steps": 20, "batch_size": 4, "seq_len": 256, "seed": 1337},
        **{"device": torch.device("cpu"), "data": None, "log_dir": "runs"},
    }
    assert list(MODELS) == ["tiny", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]


def test_a_gpu_by_its_number(card, monkeypatch):
    card("T4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert str(parse_args("doc", ["--device", "cuda:1"]).device) == "cuda:1"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--device", "cuda:64"], "--device cuda:64: this PyTorch sees"),
        (["--device", "tpu"], "expected cpu, cuda, cuda:N, xpu or mps"),
        (["--device", "t\np\x1bu"], r"--device t\np\x1bu: expected cpu"),
        (["--seq-len", "1025"], "longer than GPT-2's 1024 positions"),
        (["--steps", "0"], "expected at least 1"),
        (["--batch-size", "four"], "invalid positive integer value: 'four'"),
        (["--model", "gpt3"], "invalid choice: 'gpt3'"),
        ([*SMALL, "--data", "/no/such/corpus"], "no such file or folder: /no/such/corpus"),
        (["--data", ""], "argument --data: expected a path"),
        (["--log-dir", ""], "argument --log-dir: expected a path"),
        ([*SMALL, "--log-dir", "/dev/null/logs"], "cannot write the log /dev/null/logs"),
        ([*SMALL, "--log-dir", "/dev/null/a\n\x1b"], r"cannot write the log /dev/null/a\n\x1b:"),
    ],
)
def test_flags_that_make_no_sense(capsys, tmp_path, flags, words):
    if "--log-dir" not in flags:
        flags = [*flags, "--log-dir", tmp_path]
    assert words in fails(capsys, *flags)


def test_copies_that_torchrun_starts_are_refused_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    said = fails(capsys, *SMALL, "--log-dir", tmp_path)
    assert said.startswith(
        "error torchrun would train copies of baseline.py: for several GPUs use ddp_run.py"
    )
    monkeypatch.setenv("RANK", "1")  # of a job that torchrun did not start: no other rank says it
    assert fails(capsys, *SMALL, "--log-dir", tmp_path) == said
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(SystemExit, match="0"):
        load(rung(0)).main([*SMALL, "--log-dir", str(tmp_path)])
    assert capsys.readouterr().err == "" and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("trouble", "status", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGTERM), 130, ""),
        (lambda: os.kill(os.getpid(), signal.SIGHUP), 130, ""),
        (lambda: os.listdir("/no/folder"), 2, "error /no/folder: No such file or directory\n"),
        (lambda: print("über", file=sys.stdout), 0, ""),
    ],
)
def test_a_command_ends_in_a_line(trouble, status, said, capsys, monkeypatch):
    sys.stdout.reconfigure(encoding="ascii")
    monkeypatch.setattr("ladder.commands.diff.run", lambda args: trouble())
    assert commands.main(["diff", "5"]) == status
    assert capsys.readouterr().err == said


def test_a_command_that_nobody_can_read():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ladder", "diff", "5"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    said = "error standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_command_that_cannot_even_say_what_was_wrong(monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert commands.program(os.listdir, "/no/folder") == 2


def parsers():
    """The parser of every subcommand, of every script, and of ddp_run.py's own flags."""
    adders = {"a script": add_flags, "ddp_run.py": ranks.add_arguments}
    names = {name: importlib.import_module(f"ladder.commands.{name}") for name in commands.COMMANDS}
    for name, add in (adders | {n: module.add_arguments for n, module in names.items()}).items():
        parser = argparse.ArgumentParser(prog=name, add_help=False)
        add(parser)
        yield parser


def test_every_flag_has_a_text_and_its_default():
    for parser in parsers():
        for action in parser._actions:
            told = f"{parser.prog} {action.option_strings or action.dest}: {action.help!r}"
            assert action.help, told
            if action.option_strings and action.nargs != 0:
                assert "default: " in action.help, told
            if type(action.default) in (int, str) and action.default:
                assert re.search(rf"default: {re.escape(str(action.default))}\b", action.help), told
        parser.format_help()


def test_the_help_of_a_command_needs_no_torch():
    code = "import sys; from ladder.commands import main; sys.modules['torch'] = None; "
    assert "--repeats" in run_script("-c", code + "main(['climb', '--help'])").stdout


def test_without_a_checkout_there_is_nothing_to_climb(monkeypatch, capsys):
    monkeypatch.setattr(commands, "IS_CHECKOUT", False)
    assert commands.main(["climb"]) == 2
    assert "clone the repository" in capsys.readouterr().err


def test_without_a_checkout_texts_come_into_the_current_folder(tmp_path, monkeypatch):
    """Not beside the package, where `pip uninstall` would leave them."""
    installed = tmp_path / "site-packages" / "ladder" / "files.py"
    installed.parent.mkdir(parents=True)
    installed.write_bytes((ROOT / "ladder" / "files.py").read_bytes())
    monkeypatch.chdir(tmp_path)
    found = load(installed).DATA_DIR
    assert found == tmp_path / "data"


def write_tokens(token, count):
    return lambda path: write_shard(path, np.full(count, token, np.uint16))


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("short.bin", write_tokens(0, 100), "has 100 tokens, but one batch needs 129 (B=2 x T=64"),
        ("ids.bin", write_tokens(50300, 1000), "token id 50300, but the GPT-2 vocabulary ends at"),
        ("foreign.bin", lambda path: path.write_bytes(b"GIF89a" * 1000), "is not a shard"),
        ("latin1.txt", lambda path: path.write_bytes(b"Z\xfcrich"), "is not UTF-8 text (byte 1)"),
        ("empty.txt", Path.touch, "corpus empty is empty"),
        ("folder", Path.mkdir, "holds neither .bin shards nor .txt or .md files"),
    ],
)
def test_bad_corpora(capsys, tmp_path, name, write, said):
    write(tmp_path / name)
    line = fails(capsys, *SMALL, "--data", tmp_path / name, "--log-dir", tmp_path / "runs")
    assert said in line
    assert line in the_log(tmp_path / "runs").read_text().splitlines()  # the log file has it too


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that even root cannot read")
def test_unreadable_corpus(capsys, tmp_path):
    for path, said in (("/proc/self/mem", ""), (tmp_path / ("x" * 300), "too long")):
        line = fails(capsys, *SMALL, "--data", path, "--log-dir", tmp_path)
        assert f"cannot read {path}: " in line and said in line


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        pytest.param(
            None, "error torch.compile found no working C++ compiler", marks=pytest.mark.slow
        ),
        ("#!/bin/sh\nexit 0\n", "error torch.compile failed (IndexError"),
    ],
)
def test_no_compiler_where_torch_compile_needs_one(
    compiler, said, capsys, shard, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "c++"
    if compiler:
        path.write_text(compiler)
        path.chmod(0o700)
    monkeypatch.setitem(MODELS["tiny"], "n_layer", 1)
    with torch._inductor.config.patch({"cpp.cxx": (None, str(path))}):
        line = fails(capsys, *SMALL, "--data", shard, "--log-dir", tmp_path, number=5)
    assert said in line


def raised(outer, inner):
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/x"), "/x: Too many open files"),
        (raised(ValueError(), OSError(errno.ENOSPC, "No space")), "the system: No space"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (RuntimeError("Resource temporarily unavailable"), "no more threads"),  # C++ says it so
        (type("InductorError", (Exception,), {})("OSError: /c/x.so: no map"), "x.so: no map"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), None),  # a mistake in a script
        (FileNotFoundError(errno.ENOENT, "No such file", "/proc/y"), "_DIR=/proc/y/z cannot be"),
    ],
)
def test_what_the_machine_refuses_is_said_in_a_line(error, said, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/y/z")
    line = explain(error)
    assert said in line if said else line is None


def test_a_compile_cache_in_a_folder_with_a_blank_is_named(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/me/my cache")
    failed = type("InductorError", (Exception,), {})("CppCompileError: C++ compile error")
    assert explain(failed).startswith("TORCHINDUCTOR_CACHE_DIR=/home/me/my cache has a blank")


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space as Linux does")
def test_out_of_memory(shard, tmp_path):
    def little():
        resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))

    # The logits alone are 6.6 GB.
    flags = [*SMALL, "--batch-size", 512, "--data", shard, "--log-dir", tmp_path]
    done = run_script(rung(0), *flags, preexec_fn=little)
    assert done.returncode == 2, done.stderr
    assert "error out of memory: try a smaller --batch-size" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_loss_that_is_not_finite_stops_the_run(capsys, shard, tmp_path):
    module = load(rung(0))
    module.LEARNING_RATE = math.inf
    with pytest.raises(SystemExit) as caught:
        module.main([*SMALL, "--data", str(shard), "--log-dir", str(tmp_path)])
    assert caught.value.code == 1
    assert "error the loss of step 2 is nan: stopped" in capsys.readouterr().err
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "not finite" and len(log.steps) == 2
    assert log.result["final_loss"] is None and math.isnan(log.steps[1]["loss"])


def signal_after_step(monkeypatch, number, step=2):
    """This process gets a signal after a step, as Run.log returns."""
    log_step = Run.log

    def log(self, done, **values):
        log_step(self, done, **values)
        if done == step:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Run, "log", log)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_keeps_the_steps_done(name, capsys, shard, tmp_path, monkeypatch):
    """Also when it comes again while the RESULT is written."""
    number, before = signal.Signals[name], signal.getsignal(signal.SIGTERM)
    signal_after_step(monkeypatch, number)
    finish = Run._finish
    monkeypatch.setattr(
        Run, "_finish", lambda self, status: os.kill(os.getpid(), number) or finish(self, status)
    )
    with pytest.raises(SystemExit) as caught:
        load(rung(0)).main([*SMALL, "--data", str(shard), "--log-dir", str(tmp_path)])
    out, err = capsys.readouterr()
    assert caught.value.code == 128 + number and not err
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "interrupted" and len(log.steps) == 3
    # Every line printed is in the log, without the time left; the mfu line of a CPU knows nothing.
    screen, left = re.subn(r" \| left [\d.]+ \w+$", "", out, flags=re.MULTILINE)
    kept = the_log(tmp_path).read_text()
    assert left == 2 and re.sub(r"^mfu .*\n", "", kept, flags=re.MULTILINE) == screen
    assert signal.getsignal(signal.SIGTERM) == before


def test_under_nohup_a_closed_terminal_stops_nothing(run_main, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signal_after_step(monkeypatch, signal.SIGHUP, step=0)
        assert len(run_main(load(rung(0)), "--steps", 3).steps) == 3
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_daemon_without_standard_streams_trains(shard, tmp_path):
    flags = [*SMALL, "--steps=3", "--data", str(shard), "--log-dir", str(tmp_path)]
    shell = 'exec "$@" <&- >&- 2>&-'
    words = ["sh", "-c", shell, "sh", sys.executable, str(rung(0)), *flags]
    assert subprocess.run(words, cwd=ROOT).returncode == 0
    assert read_log(the_log(tmp_path)).result["status"] == "ok"


def test_a_child_that_fails_is_seen_where_the_parent_ignored_sigchld():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        asked = [sys.executable, "-c", "raise SystemExit(3)"]
        assert commands.program(lambda: subprocess.run(asked).returncode) == 3
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("full", ["log", "screen"])
def test_a_full_disk_costs_only_what_is_on_it(full, capsys, shard, tmp_path, monkeypatch):
    if full == "log":
        monkeypatch.setattr(Run, "_open_log", lambda self: open("/dev/full", "w"))  # noqa: SIM115
    else:
        monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115
    with pytest.raises(SystemExit) as caught:
        load(rung(0)).main([*SMALL, "--steps=4", "--data", str(shard), "--log-dir", str(tmp_path)])
    out, err = capsys.readouterr()
    assert caught.value.code == 2 and len(err.splitlines()) == 1
    assert err.startswith("error cannot write /dev/full: No space left on device")
    kept = tmp_path / "screen.log" if full == "log" else the_log(tmp_path)
    if full == "log":
        kept.write_text(out)
    log = read_log(kept)
    assert len(log.steps) == 4 and log.result["status"] == "ok"


def test_two_runs_of_one_second_and_one_process_id_have_a_log_each(run_main, monkeypatch):
    """As in two containers that share --log-dir."""
    now = run.datetime.now()
    monkeypatch.setattr(run, "datetime", type("Clock", (), {"now": staticmethod(lambda: now)}))
    logs = [run_main(load(rung(0)), "--steps", steps) for steps in (1, 2)]
    assert [log.run["steps"] for log in logs] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"foreign\xff", r"foreign\udcff"),
        (b"new\nline", r"new\nline"),
        ("line\u2028end".encode(), r"line\u2028end"),
        (b'tab\t"quoted"', r'tab\t"quoted"'),
    ],
)
def test_any_file_name_can_stand_in_a_log(name, shown, run_main, shard, tmp_path, capsys):
    path = os.fsencode(tmp_path) + b"/" + name + b".bin"
    os.link(shard, path)
    assert run_main(load(rung(0)), "--steps", 1, "--data", os.fsdecode(path)).run["data"] == shown
    assert shown in fails(capsys, *SMALL, "--data", os.fsdecode(path) + "x", "--log-dir", tmp_path)


def test_where_nobody_reads_from_the_start_the_run_ends_without_a_word(
    shard, tmp_path, monkeypatch, capsys
):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    with pytest.raises((SystemExit, KeyboardInterrupt), match="130"):
        load(rung(0)).main([*SMALL, "--data", str(shard), "--log-dir", str(tmp_path)])
    assert not capsys.readouterr().err and the_log(tmp_path).read_text().startswith("note  ")


@pytest.mark.parametrize("ctrl_c", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_where_nobody_reads_any_more_the_result_is_in_the_log(shard, tmp_path, ctrl_c):
    """`python baseline.py | head`, and Ctrl-C in `| tee`, which ends tee as well."""
    flags = [*SMALL, "--steps", "1000", "--data", shard, "--log-dir", tmp_path]
    process = subprocess.Popen(
        [sys.executable, rung(0), *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while not process.stdout.readline().startswith("step    3/"):
        pass
    if ctrl_c:
        process.send_signal(signal.SIGINT)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=300) == 130 and not err
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "interrupted" and len(log.steps) >= 3


def test_a_mistake_in_a_script_keeps_the_steps_done(capsys, shard, tmp_path, monkeypatch):
    module = load(rung(9))
    monkeypatch.setattr(torch, "compile", lambda model: model)
    module.get_lr = lambda step, steps: 1e-4 if step < 2 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        module.main([*SMALL, "--data", str(shard), "--log-dir", str(tmp_path)])
    assert "error ZeroDivisionError: division by zero" in capsys.readouterr().err
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "failed" and len(log.steps) == 2


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_has_as_many_steps_as_it_was_asked_for(steps, run_main, monkeypatch):
    """The profile is one of the second step, and the first two are not a measurement."""
    module, read = load(rung(0)), []
    fetch = module.Batches.__next__
    monkeypatch.setattr(module.Batches, "__next__", lambda self: read.append(1) or fetch(self))
    log = run_main(module, "--steps", steps)
    assert len(read) == len(log.steps) == steps and log.result["status"] == "ok"
    assert log.effective.get("attention") == (None if steps == 1 else "math")
    assert (log.result["warmup_steps"], log.result["measured_steps"]) == (steps - 1, 1)
    assert any("not a measurement" in note for note in log.notes) == (steps < 3)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory"), "No usable temp"),
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory: try"),
    ],
)
def test_an_error_without_a_file_is_not_blamed_on_the_output(trouble, said, capsys, monkeypatch):
    def fail(*_, **__):
        raise trouble

    monkeypatch.setattr("ladder.commands.diff.run", fail)
    assert commands.main(["diff", "5"]) == 2
    assert capsys.readouterr().err.startswith(f"error {said}")
    monkeypatch.setattr(subprocess, "run", fail)
    if isinstance(trouble, OSError):
        missing = "git is not installed" if trouble.errno == errno.ENOENT else "git does not start"
        assert files.commit() == "unknown"
        assert f"note  git cannot say which commit this is: {missing}" in capsys.readouterr().err


def test_a_bug_in_a_command_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        commands.program(lambda: 1 / 0)
