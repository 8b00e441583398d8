"""ddp_run.py with real processes: torchrun, gloo, signals and checkpoints as users meet them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from conftest import ROOT, SMALL, hear_ctrl_c, load

from ladder import checkpoint
from ladder.corpus import Corpus
from ladder.errors import BadInput
from ladder.log import read_log

STEPS = 10
EXACT = ["--dtype", "float32", "--no-compile", "--total-batch", 512, "--steps", STEPS]


@pytest.fixture
def job(shard, tmp_path):
    """job(ranks, *flags): start ddp_run.py on so many ranks (0: without torchrun)."""
    started = []

    def start(ranks, *flags, script=ROOT / "ddp_run.py", torchrun=(), folder=tmp_path, exact=EXACT):
        words = [sys.executable]
        if ranks:
            words += ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
            words += torchrun or ["--standalone"]
        words += [script, *SMALL, "--data", shard, "--log-dir", folder / "runs"]
        words += ["--ckpt-dir", folder / "ckpt", *exact, *flags]
        process = subprocess.Popen(
            [str(word) for word in words],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear_ctrl_c,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def finish(process, timeout=120):
    """Wait for it and return its status, stdout and stderr."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def only_log(folder):
    (path,) = (folder / "runs").glob("*.log")
    return read_log(path)


def losses(log):
    return {step["step"]: step["loss"] for step in log.steps}


def weights(folder):
    return torch.load(folder / "ckpt" / f"step_{STEPS:06d}.pt", weights_only=True)["model"]


def wait_for(process, pattern):
    """Read its output up to the first line that matches. The lines so far."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return "".join(lines)
    raise AssertionError(f"no {pattern!r} in:\n{''.join(lines)}\n{process.stderr.read()}")


def pid_of_rank(rank, launcher):
    """The process that torchrun, `launcher`, started as this rank."""
    children = subprocess.check_output(["pgrep", "-P", str(launcher.pid)], text=True).split()
    for pid in children:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            if f"RANK={rank}".encode() in environ.read().split(b"\0"):
                return int(pid)
    raise AssertionError(f"no rank {rank} among {children}")


def wrapper(folder, code):
    """A script that changes something in ddp_run and then runs it."""
    path = folder / "wrapper.py"
    imports = "import os, pathlib, signal, time\nimport ladder.corpus\nimport ddp_run\n"
    path.write_text(f"{imports}{code}\nddp_run.main()\n")
    return path


@pytest.fixture(scope="module")
def whole(shard, tmp_path_factory):
    """whole(ranks): an undisturbed run of ten steps with a checkpoint after each five."""
    runs = {}

    def run(ranks, job):
        if ranks not in runs:
            folder = tmp_path_factory.mktemp("whole")
            status, out, err = finish(job(ranks, "--ckpt-every", 5, folder=folder))
            assert status == 0, out + err
            runs[ranks] = folder
        return runs[ranks]

    return run


def test_the_same_training_in_any_layout(job, whole, tmp_path):
    """Two ranks of two micro-steps, one of four, one of one at four times the batch."""
    two, one = whole(2, job), whole(1, job)
    assert finish(job(0, "--batch-size", 8, "--ckpt-every", STEPS))[0] == 0
    logs = [only_log(folder) for folder in (two, one, tmp_path)]
    assert [(log.run["ranks"], log.run["accumulation"]) for log in logs] == [
        ("2", "2"),
        ("1", "4"),
        ("1", "1"),
    ]
    for log in logs[1:]:
        assert losses(log) == pytest.approx(losses(logs[0]), abs=5e-6)
        assert log.vals[-1]["loss"] == pytest.approx(logs[0].vals[-1]["loss"], abs=5e-6)
    reference = weights(two)
    for folder in (one, tmp_path):
        for name, w in weights(folder).items():
            # Without gradient but for rounding, which Adam blows up: a key's bias changes nothing.
            if name.endswith("c_attn.bias"):
                C = len(w) // 3
                w, reference[name] = w.clone(), reference[name].clone()
                w[C : 2 * C] = reference[name][C : 2 * C] = 0
            assert (w - reference[name]).norm() <= 1e-4 * reference[name].norm() + 1e-7, name


def test_the_log_of_several_ranks_is_that_of_one_script(job, whole):
    folder = whole(2, job)
    log = only_log(folder)
    assert log.result["status"] == "ok" and log.result["script"] == "ddp_run.py"
    assert log.run["total_batch"] == "512" and log.effective["optimizer"] == "fused"
    assert log.result["tok_per_s"] == pytest.approx(512e3 / log.result["median_ms"], rel=1e-3)
    assert log.steps[3]["tok_per_s"] == pytest.approx(512 / log.steps[3]["dt"], rel=0.01)
    assert [val["step"] for val in log.vals] == [STEPS] and len(log.samples) == 1
    assert sorted(p.name for p in (folder / "ckpt").iterdir()) == [
        "step_000005.pt",
        "step_000010.pt",
    ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_was_cut_goes_on_bit_for_bit(ranks, job, whole, tmp_path):
    folder = whole(ranks, job)
    (tmp_path / "ckpt").mkdir()
    shutil.copy(folder / "ckpt" / "step_000005.pt", tmp_path / "ckpt")
    status, out, err = finish(job(ranks, "--ckpt-every", 5, "--resume"))
    assert status == 0, out + err
    uncut = losses(only_log(folder))
    assert losses(only_log(tmp_path)) == {step: uncut[step] for step in range(6, STEPS + 1)}
    for name, w in weights(tmp_path).items():
        assert torch.equal(w, weights(folder)[name]), name


def test_sigterm_to_one_rank_stops_all_after_a_whole_step(job, whole, tmp_path):
    process = job(2)
    out = wait_for(process, r"step +3/")
    os.kill(pid_of_rank(1, process), signal.SIGTERM)
    status, rest, err = finish(process)
    assert status == 0, out + rest + err  # torchrun: all its ranks ended with 0
    log = only_log(tmp_path)
    done = len(log.steps)
    assert 3 <= done < STEPS and log.result["status"] == "stopped"
    assert f"step_{done:06d}.pt" in rest and "SIGTERM" in rest
    status, out, err = finish(job(2, "--resume", folder=tmp_path))
    assert status == 0, out + err
    resumed = [read_log(path) for path in (tmp_path / "runs").glob("*.log")]
    joined = {step: loss for log in resumed for step, loss in losses(log).items()}
    assert joined == losses(only_log(whole(2, job)))


def test_sigterm_to_torchrun_and_to_a_single_process(job, tmp_path):
    for ranks in (2, 0):
        folder = tmp_path / str(ranks)
        process = job(ranks, "--steps", 100, folder=folder)
        wait_for(process, r"step +3/")
        process.terminate()
        status, out, err = finish(process, timeout=40)
        assert only_log(folder).result["status"] == "stopped", out + err
        assert list((folder / "ckpt").glob("step_*.pt"))
        assert ranks or status == 0


def test_a_killed_rank_restarts_the_job_from_its_last_checkpoint(job, whole, tmp_path):
    process = job(2, "--ckpt-every", 5, torchrun=["--standalone", "--max-restarts=1"])
    wait_for(process, r"step +7/")
    os.kill(pid_of_rank(1, process), signal.SIGKILL)
    status, out, err = finish(process)
    assert status == 0, out + err
    assert "note  going on after step 5" in out
    _first, second = (read_log(p) for p in sorted_logs(tmp_path))
    assert losses(second)[STEPS] == losses(only_log(whole(2, job)))[STEPS]


def sorted_logs(folder):
    """Complete ones last: a rank that was killed leaves a log without RESULT."""
    paths = sorted((folder / "runs").glob("*.log"), key=lambda p: p.stat().st_mtime)
    for path in paths:
        if "RESULT" not in path.read_text():
            path.write_text(path.read_text() + 'RESULT {"status": "killed"}\n')
    return paths


def test_killed_while_a_checkpoint_is_being_written(job, whole, tmp_path):
    code = (
        "saved = []\n"
        "def killed(fd):\n"
        "    saved.append(fd)\n"
        "    if len(saved) == 2 and ddp_run.RESTARTS == 0:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "ddp_run.os.fsync = killed"
    )
    torchrun = ["--standalone", "--max-restarts=1"]
    script = wrapper(tmp_path, code)
    status, out, err = finish(job(2, "--ckpt-every", 4, script=script, torchrun=torchrun))
    assert status == 0, out + err
    assert "step_000008.tmp was never finished" in out and "going on after step 4" in out
    assert (
        losses(read_log(sorted_logs(tmp_path)[-1]))[STEPS] == losses(only_log(whole(2, job)))[STEPS]
    )
    assert not list((tmp_path / "ckpt").glob("*.tmp"))


def test_two_nodes_meet_over_loopback(job, whole, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agents = [
        job(
            1,
            torchrun=[
                "--nnodes=2",
                f"--node-rank={node}",
                "--master-addr=127.0.0.1",
                f"--master-port={port}",
            ],
        )
        for node in (0, 1)
    ]
    for agent in agents:
        status, out, err = finish(agent)
        assert status == 0, out + err
    assert losses(only_log(tmp_path)) == losses(only_log(whole(2, job)))


def test_a_rank_that_fails_ends_the_job_with_its_error(job, tmp_path):
    code = (
        "real = ddp_run.get_lr\n"
        "def get_lr(step, steps):\n"
        "    if step == 2 and ddp_run.RANK == 1:\n"
        "        raise ZeroDivisionError('rank one broke')\n"
        "    return real(step, steps)\n"
        "ddp_run.get_lr = get_lr"
    )
    start = time.monotonic()
    status, out, err = finish(job(2, script=wrapper(tmp_path, code)), timeout=90)
    assert status != 0 and time.monotonic() - start < 60
    assert "rank 1: error ZeroDivisionError: rank one broke" in err
    assert "step    2/10" in out and "step    4/10" not in out


def test_one_rank_prepares_the_text_and_the_slowest_sets_the_time(job, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question. " * 200)
    code = (
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "ladder.corpus.DATA_DIR = folder\n"
        "def encoder(timeout_s):\n"
        "    (folder / f'tokenized-by-{ddp_run.RANK}').touch()\n"
        "    return lambda text: list(text.encode())\n"
        "ladder.corpus.gpt2_encoder = encoder\n"
        "real = ddp_run.get_lr\n"
        "def get_lr(step, steps):\n"
        "    if ddp_run.RANK == 1 and step == 2:\n"
        "        time.sleep(2)\n"
        "    return real(step, steps)\n"
        "ddp_run.get_lr = get_lr"
    )
    script = wrapper(tmp_path, code)
    status, out, err = finish(job(2, "--data", text, "--steps", 3, script=script))
    assert status == 0, out + err
    assert [p.name for p in tmp_path.glob("tokenized-by-*")] == ["tokenized-by-0"]
    assert only_log(tmp_path).steps[2]["dt"] >= 2


BAD = {
    "cut short": (["--resume"], "is damaged or no checkpoint"),
    "foreign": (["--resume"], "is damaged or no checkpoint"),
    "another size": (["--resume", "--model", "gpt2"], "--model tiny, this run has gpt2"),
    "earlier run": ([], "is of an earlier run: go on from it with --resume"),
    "no whole batch": (["--total-batch", 500], "the nearest that are: "),
    "no number": (["--steps", "none"], "--steps"),
    "no folder": (["--ckpt-dir", __file__], "cannot write checkpoints into"),
}


@pytest.mark.parametrize(
    ("ranks", "trouble"),
    [*((0, trouble) for trouble in BAD), (2, "cut short"), (2, "no whole batch"), (2, "no number")],
)
def test_bad_input_is_one_line_of_rank_0(ranks, trouble, job, whole, tmp_path):
    flags, said = BAD[trouble]
    good = whole(1, job) / "ckpt" / "step_000005.pt"
    (tmp_path / "ckpt").mkdir()
    if not trouble.startswith("no "):
        content = {"cut short": good.read_bytes()[:100_000], "foreign": b"no checkpoint at all"}
        (tmp_path / "ckpt" / good.name).write_bytes(content.get(trouble, good.read_bytes()))
    before = {p: p.read_bytes() for p in (tmp_path / "ckpt").iterdir()}
    status, _out, err = finish(job(ranks, *flags))
    own, *report = re.split(r"^[WE]\d{4} .*torch/distributed/elastic", err, flags=re.MULTILINE)
    lines = [line for line in own.splitlines() if "error" in line]
    assert len(lines) == 1 and said in lines[0], err
    assert "Traceback" not in own and ("exitcode  : 2" in "".join(report) if ranks else status == 2)
    assert {p: p.read_bytes() for p in (tmp_path / "ckpt").iterdir()} == before


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "torchrun started 2 processes on this machine, where PyTorch sees 1 CUDA devices"),
        (["--device", "cuda:0"], "--device cuda:0: torchrun gives each process a GPU, say cuda"),
    ],
)
def test_more_ranks_than_gpus(flags, words, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    properties = type("P", (), {"total_memory": 80e9})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    module = load(ROOT / "ddp_run.py")
    assert module.parse(flags).total_batch == 524288
    assert module.parse(["--device", "cpu"]).total_batch == 4096
    module.DISTRIBUTED, module.LOCAL_WORLD = True, 2
    with pytest.raises(SystemExit) as caught:
        module.parse(flags)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error ") and words in line


def test_ranks_on_an_apple_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    module = load(ROOT / "ddp_run.py")
    assert module.parse(["--device", "mps"]).device.type == "mps"  # alone
    module.DISTRIBUTED = True
    with pytest.raises(SystemExit) as caught:
        module.parse(["--device", "mps"])
    assert caught.value.code == 2
    assert "error gloo does not reach an Apple GPU: --device cpu" in capsys.readouterr().err


def test_help_ends_all_ranks_well(job):
    status, out, err = finish(job(2, "--help"))
    assert status == 0 and out.count("--total-batch TOKENS") == 2, err  # in usage and in the list


def test_bytes_are_not_the_tokens_of_the_same_text(tmp_path, monkeypatch):
    """A checkpoint of one is not gone on from with the other, nor do two ranks train on both."""
    module = load(ROOT / "ddp_run.py")
    args = module.parse(["--device", "cpu", "--ckpt-dir", str(tmp_path), "--eval-every", "0"])
    shard, found = np.arange(2000, dtype=np.uint16), []
    for tokenizer in ("bytes", "gpt2"):
        parts = [Corpus("text", "0123", [part], tokenizer) for part in (shard, shard[:5])]
        # The held-out part is too short, and not asked for.
        monkeypatch.setattr(module, "load_splits", lambda *_, parts=parts: parts)
        _, val_rows, identity, _ = module.prepare(args, print)
        assert val_rows == 0
        found.append(identity["data"])
    assert found == ["bytes 0123", "gpt2 0123"]
    args.eval_every = 1
    with pytest.raises(BadInput):
        module.prepare(args, print)


def test_other_files_in_the_folder_and_a_disk_that_fails_later(tmp_path):
    (tmp_path / "step_best.pt").touch()  # somebody's own
    assert checkpoint.checkpoints(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write the checkpoint"):
        checkpoint.save(tmp_path / "file", step=1)


def test_a_resume_without_a_checkpoint_says_so(job, tmp_path):
    status, out, _err = finish(job(0, "--resume", "--steps", 2))
    assert status == 0 and "starting from the beginning" in out


def test_another_schedule_is_said(job, whole, tmp_path):
    (tmp_path / "ckpt").mkdir()
    shutil.copy(whole(1, job) / "ckpt" / "step_000005.pt", tmp_path / "ckpt")
    status, out, _err = finish(job(0, "--resume", "--steps", 7))
    assert status == 0 and "the schedule was of 10 steps, now of 7" in out


def test_as_users_leave_the_flags_but_for_the_size(job, whole, tmp_path):
    """Compiled and in bfloat16, on two ranks."""
    status, out, err = finish(job(2, "--total-batch", 512, "--steps", STEPS, exact=()), timeout=300)
    assert status == 0, out + err
    log = only_log(tmp_path)
    assert losses(log) == pytest.approx(losses(only_log(whole(2, job))), abs=0.02)
    assert log.effective["autocast"] == "bfloat16" and log.effective["compiled"] == "yes"
