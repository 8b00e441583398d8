"""Bad input gets one line on stderr and status 2; a run that is cut short loses nothing."""

import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, SMALL, hear_ctrl_c, load, run_script, rung

from ladder import machine
from ladder.cli import MODELS, default_batch_size, parse_args
from ladder.errors import BadInput, explain
from ladder.log import read_log
from ladder.run import Run
from ladder.shards import write_shard


def fails(capsys, *flags, number=0, status=2):
    """Run main() with flags that make no sense; returns what it says on stderr."""
    with pytest.raises(SystemExit) as caught:
        load(rung(number)).main([str(flag) for flag in flags])
    assert caught.value.code == status
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
        "steps": 20,
        "batch_size": 4,
        "seq_len": 256,
        "seed": 1337,
        "device": torch.device("cpu"),
        "data": None,
        "log_dir": "runs",
    }
    assert list(MODELS) == ["tiny", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]


def test_defaults_on_cuda_follow_the_memory_of_the_card(monkeypatch):
    def card(gigabytes):
        properties = type("P", (), {"total_memory": gigabytes * 1e9})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        return default_batch_size(torch.device("cuda"))

    assert [card(n) for n in (85, 42.3, 33.7, 23.7, 16.9, 12.6, 8.4)] == [16, 16, 8, 8, 4, 2, 1]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    args = parse_args("doc", [])
    assert (str(args.device), args.seq_len, args.steps) == ("cuda", 1024, 50)
    assert str(parse_args("doc", ["--device", "cuda:1"]).device) == "cuda:1"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--device", "cuda:64"], "--device cuda:64: this PyTorch sees"),
        (["--device", "tpu"], "expected cpu, cuda, cuda:N or mps"),
        (["--seq-len", "1025"], "longer than GPT-2's 1024 positions"),
        (["--steps", "0"], "expected at least 1"),
        (["--batch-size", "four"], "invalid positive integer value: 'four'"),
        (["--model", "gpt3"], "invalid choice: 'gpt3'"),
        ([*SMALL, "--data", "/no/such/corpus"], "no such file or folder: /no/such/corpus"),
        ([*SMALL, "--log-dir", "/dev/null/logs"], "cannot write the log /dev/null/logs"),
    ],
)
def test_flags_that_make_no_sense(capsys, tmp_path, flags, words):
    if "--log-dir" not in flags:
        flags = [*flags, "--log-dir", tmp_path]
    assert words in fails(capsys, *flags)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_without_one(capsys):
    assert "sees 0 CUDA devices; try --device cpu" in fails(capsys, "--device", "cuda")


def write_tokens(token, count):
    return lambda path: write_shard(path, np.full(count, token, np.uint16))


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("short.bin", write_tokens(0, 100), "has 100 tokens, but one batch needs 129 (B=2 x T=64"),
        ("ids.bin", write_tokens(50300, 1000), "token id 50300, but the GPT-2 vocabulary ends at"),
        ("foreign.bin", lambda path: path.write_bytes(b"GIF89a" * 1000), "is no shard: expected"),
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


def test_a_gpu_without_bf16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    machine.require_bf16(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    with pytest.raises(BadInput, match="Tesla T4 has no bfloat16 units: rungs 03"):
        machine.require_bf16(torch.device("cuda"))


def test_no_compiler_where_torch_compile_needs_one(capsys, shard, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", (None, "/no/such/compiler"))
    monkeypatch.setitem(MODELS["tiny"], "n_layer", 1)
    line = fails(capsys, *SMALL, "--data", shard, "--log-dir", tmp_path, number=5)
    assert "error torch.compile found no working C++ compiler" in line


def test_no_compiler_where_triton_needs_one():
    try:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable")
    except RuntimeError as error:
        wrapped = RuntimeError("backend raised")
        wrapped.__cause__ = error
    assert "name a compiler with CC)" in explain(wrapped)


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


def test_ctrl_c_keeps_the_steps_done(capsys, shard, tmp_path, monkeypatch):
    log_step = Run.log

    def log_until_ctrl_c(self, step, **values):
        log_step(self, step, **values)
        if step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "log", log_until_ctrl_c)
    with pytest.raises(SystemExit) as caught:
        load(rung(0)).main([*SMALL, "--data", str(shard), "--log-dir", str(tmp_path)])
    out, err = capsys.readouterr()
    assert caught.value.code == 130 and not err
    log = read_log(the_log(tmp_path))
    assert log.result["status"] == "interrupted" and len(log.steps) == 3
    assert the_log(tmp_path).read_text() == out  # every line printed is in the log


@pytest.mark.parametrize("ctrl_c", [False, True])
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
    """The profile is one of the second step, and the first two are no measurement."""
    module, read = load(rung(0)), []
    fetch = module.Batches.__next__
    monkeypatch.setattr(module.Batches, "__next__", lambda self: read.append(1) or fetch(self))
    log = run_main(module, "--steps", steps)
    assert len(read) == len(log.steps) == steps and log.result["status"] == "ok"
    assert log.effective.get("attention") == (None if steps == 1 else "math")
    assert (log.result["warmup_steps"], log.result["measured_steps"]) == (steps - 1, 1)
    assert any("no measurement" in note for note in log.notes) == (steps < 3)


def test_a_rank_whose_peer_is_gone_says_so_in_one_line():
    """gloo's own words, in which a reader would look for the cause."""
    said = "[../third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [::1]:1"
    assert "another rank is gone" in explain(RuntimeError(said))
