"""ddp_run.py: the same training in any layout, its flags, and processes that are stopped or die."""

import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial

import pytest
import torch
from conftest import AUTOCAST, ROOT, SMALL, SMALLER, load

from ladder import checkpoint, ranks
from ladder.cli import MODELS
from ladder.errors import BadInput
from ladder.measure.parser import read_log

STEPS = 6
EXACT = ["--dtype", "float32", "--no-compile", "--total-batch", 512, "--steps", STEPS]
TWO = ["--standalone", "--nproc_per_node=2"]
# Runs at(step) on each rank while the learning rate of `step` is computed.
WRAPPER = f"""
import os, signal, torch, ladder.cli, ddp_run
from ladder.ranks import RANK
ladder.cli.MODELS["tiny"] = {SMALLER}
CODE
real = ddp_run.get_lr
ddp_run.get_lr = lambda step, *schedule: at(step) or real(step, *schedule)
ddp_run.main()
"""


@pytest.fixture(scope="module", autouse=True)
def smaller():
    """Also for the runs that tests share, for which `monkeypatch` comes too late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "tiny", SMALLER)
        yield


def command_line(shard, folder, *flags, exact=EXACT):
    """The flags of a run whose log and checkpoints go into `folder`."""
    paths = ["--data", shard, "--log-dir", folder / "runs", f"--ckpt-dir={folder / 'ckpt'}"]
    return [str(word) for word in (*SMALL, *paths, *exact, *flags)]


@pytest.fixture(scope="module")
def job(shard):
    """job(folder, *flags, code): start torchrun with ddp_run.py in WRAPPER around `code`."""

    def start(folder, *flags, code="def at(step): pass", torchrun=TWO, exact=EXACT):
        (script := folder / "wrapper.py").write_text(WRAPPER.replace("CODE", code))
        words = ["-m", "torch.distributed.run", *torchrun, script]
        return subprocess.Popen(
            [sys.executable, *words, *command_line(shard, folder, *flags, exact=exact)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finish(process, status=0):
    """Wait until it ends with `status` (None: with any). Returns its stdout and stderr."""
    try:
        out, err = process.communicate(timeout=900)
    finally:
        process.terminate()  # torchrun ends its ranks then
    assert status in (process.returncode, None), out + err
    return out, err


@pytest.fixture(scope="module")
def two(job, tmp_path_factory):
    """The folder of an undisturbed run on two ranks, with a checkpoint after each three steps."""
    folder = tmp_path_factory.mktemp("two")
    finish(job(folder, "--ckpt-every", 3))
    return folder


@pytest.fixture(scope="module")
def one(shard, tmp_path_factory):
    """The folder of the same run in this process, without torchrun."""
    folder = tmp_path_factory.mktemp("one")
    load(ROOT / "ddp_run.py").main(command_line(shard, folder, "--ckpt-every", 3))
    return folder


@pytest.fixture
def alone(shard, tmp_path, capsys):
    """alone(*flags, at): main() in this process, at(step) as in WRAPPER: status, stdout, stderr."""

    def run(*flags, at=lambda step: None, exact=EXACT):
        module, status = load(ROOT / "ddp_run.py"), 0
        real = module.get_lr
        module.get_lr = lambda step, *schedule: at(step) or real(step, *schedule)
        try:
            module.main(command_line(shard, tmp_path, *flags, exact=exact))
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return run


def last_log(folder):
    return read_log(max((folder / "runs").glob("*.log"), key=os.path.getmtime))


def losses(folder):
    """By step, of all logs in the folder."""
    logs = [read_log(path) for path in (folder / "runs").glob("*.log")]
    return {step["step"]: step["loss"] for log in logs for step in log.steps}


def weights(folder):
    return checkpoint.read(folder / "ckpt" / f"step_{STEPS:06d}.pt")["model"]


# ------------------------------------------------------------------------- the same training


def test_the_same_training_in_any_layout(two, one, alone, tmp_path):
    """Two ranks of two micro-steps, one of four, one of one at four times the batch."""
    assert alone("--batch-size", 8, "--ckpt-every", STEPS)[0] == 0
    expected = last_log(two)
    for folder, layout in ((one, ("1", "2")), (tmp_path, ("1", "8"))):
        log = last_log(folder)
        assert (log.run["ranks"], log.run["B"]) == layout
        assert losses(folder) == pytest.approx(losses(two), abs=5e-6)
        assert log.vals[-1]["loss"] == pytest.approx(expected.vals[-1]["loss"], abs=5e-6)
        norms = [[step["norm"] for step in found.steps] for found in (log, expected)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-3)  # clipping would hide a wrong scale
        for name, w in weights(folder).items():
            reference = weights(two)[name]
            # Without gradient but for rounding, which Adam blows up: a key's bias changes nothing.
            if name.endswith("c_attn.bias"):
                C = len(w) // 3
                w[C : 2 * C] = reference[C : 2 * C] = 0
            assert (w - reference).norm() <= 1e-4 * reference.norm() + 1e-7, name
    result = expected.result
    assert result["tok_per_s"] == pytest.approx(512e3 / result["median_ms"], rel=1e-3)
    assert "a step is 512 tokens: 2 micro-steps x 2 ranks x B=2 x T=64" in expected.notes


CUT = {
    "with its flags": ([], []),
    "shuffled, with another batch": (["--shuffle", 3], ["--batch-size", 4]),
    "in float16": (["--dtype", "float16"], []),
}


@pytest.mark.parametrize("how", CUT)
def test_a_run_that_was_cut_goes_on(how, alone, one, tmp_path, monkeypatch):
    """Bit for bit, if the batch is the same: with its order of rows and its scale of the loss."""
    flags, other = CUT[how]
    scaler = partial(torch.amp.GradScaler, init_scale=2.0**20)  # too large for the first step
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    assert alone(*flags, "--ckpt-every", 3)[0] == 0
    uncut, expected = last_log(tmp_path), weights(tmp_path)
    (tmp_path / "ckpt" / "step_000006.pt").unlink()
    assert alone(*flags, *other, "--ckpt-every", 3, "--resume")[0] == 0
    again = last_log(tmp_path)
    found, left = ([(step["step"], step["loss"]) for step in log.steps] for log in (again, uncut))
    assert dict(found) == pytest.approx(dict(left[3:]), abs=5e-6 if other else 0)
    assert other or all(torch.equal(w, expected[name]) for name, w in weights(tmp_path).items())
    assert ("--shuffle" in flags) == (abs(left[0][1] - losses(one)[1]) > 1e-3)
    scales = [log.result.get("loss_scale") for log in (uncut, again)]
    assert scales[0] == scales[1] and (scales[0] or 0) < 2**20


@pytest.mark.slow
def test_as_users_leave_the_flags_but_for_the_size(job, one, tmp_path):
    """Compiled, fsdp_run.py's blocks alone, and in bfloat16, on two ranks. The profile of a step
    has no validation in it, which is not compiled."""
    finish(job(tmp_path, "--eval-every", 1, exact=["--total-batch", 512, "--steps", STEPS]))
    log = last_log(tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(one), abs=0.02)
    compiled = "partly" if log.run["script"] == "fsdp_run.py" else "yes"
    assert (log.effective["autocast"], log.effective["compiled"]) == (AUTOCAST, compiled)


# --------------------------------------------------------------- stopped, killed, a full disk


@pytest.mark.parametrize("how", ["SIGINT", "tee"])
def test_a_run_that_is_stopped_saves_its_step(how, alone, tmp_path, monkeypatch):
    """Also where the signal ended `| tee` before: the next line meets a closed pipe."""

    def stop(step):
        if step == 2 and how == "tee":
            reader, writer = os.pipe()
            os.close(reader)
            monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
        elif step == 2:
            os.kill(os.getpid(), signal.Signals[how])

    status, out, err = alone("--eval-every", 0, at=stop)
    assert status == 0, out + err
    log, path = last_log(tmp_path), tmp_path / "ckpt" / "step_000003.pt"
    assert log.result["status"] == "stopped" and len(log.steps) == 3 and path.exists()
    name, kept = how.replace("tee", "SIGTERM"), f"{path} is kept, the same command with --resume"
    assert f"{name}: stopped after step 3; {kept} goes on" in log.notes
    assert "note  finishing this step; Ctrl-C stops at once" in err


def test_a_second_ctrl_c_stops_at_once(alone, tmp_path):
    def twice(step):
        for _ in range(2 * step):
            os.kill(os.getpid(), signal.SIGINT)

    assert alone(at=twice)[0] == 130 and last_log(tmp_path).result["status"] == "interrupted"
    assert len(losses(tmp_path)) == 1 and not checkpoint.checkpoints(tmp_path / "ckpt")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_ends_no_training(alone, tmp_path, monkeypatch):
    """The next checkpoint is tried; the status says that one is missing."""
    real = checkpoint.write_atomic

    def to_full_disk(_, write):
        monkeypatch.setattr(checkpoint, "write_atomic", real)
        with open("/dev/full", "wb", buffering=0) as full:
            write(full)  # torch hides why it fails

    monkeypatch.setattr(checkpoint, "write_atomic", to_full_disk)
    status, _, err = alone("--ckpt-every", 2)
    assert status == 2 and err.count("error ") == 1 and "No space left on device; the run" in err
    assert last_log(tmp_path).result["status"] == "ok"
    kept = [path.name for path in checkpoint.checkpoints(tmp_path / "ckpt")]
    assert kept == ["step_000004.pt", "step_000006.pt"]


def test_weights_that_became_nan_are_not_saved(alone, tmp_path):
    status, _, err = alone("--ckpt-every", 1, "--eval-every", 0, at=lambda step: math.nan)
    assert status == 1 and "is not finite after step 1: it is not saved" in err
    assert not checkpoint.checkpoints(tmp_path / "ckpt")


@pytest.mark.slow
def test_killed_ranks_restart_the_job_from_its_last_checkpoint(job, two, tmp_path):
    """Rank 1 dies in a step, then rank 0 while it writes a checkpoint."""
    code = """
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def at(step):
    if (os.environ["TORCHELASTIC_RESTART_COUNT"], RANK, step) == ("0", 1, 3):
        kill()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        os.fsync = kill
"""
    torchrun = [*TWO, "--max-restarts=2"]
    out, _ = finish(job(tmp_path, "--ckpt-every", 2, "--resume", torchrun=torchrun, code=code))
    assert out.count("note  going on after step 2") == 2
    assert last_log(tmp_path).steps[-1]["loss"] == losses(two)[STEPS]
    assert not [*(tmp_path / "ckpt").glob("*.tmp")]


@pytest.mark.slow
def test_one_node_goes_on_where_ctrl_c_stopped_two(job, two, tmp_path):
    """They meet over loopback, and all of it is bit for bit what one node does undisturbed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meet = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={probe.getsockname()[1]}"]
    code = "def at(step):\n    if step == 2 and RANK == 1: os.kill(os.getpid(), signal.SIGINT)"
    nodes = [job(tmp_path, torchrun=[*meet, f"--node-rank={n}"], code=code) for n in (0, 1)]
    (out, _), _ = [finish(node) for node in nodes]  # torchrun: all its ranks ended with 0
    done = len(last_log(tmp_path).steps)
    assert f"step_{done:06d}.pt" in out and "SIGINT" in out and done < STEPS
    finish(job(tmp_path, "--ckpt-every", 3, "--resume"))
    assert len(last_log(tmp_path).steps) == STEPS - done and losses(tmp_path) == losses(two)


@pytest.mark.slow
def test_one_rank_that_fails_ends_all_and_says_why(job, tmp_path):
    out, err = finish(job(tmp_path, code="def at(step): RANK * step == 3 and 1 / 0"), status=1)
    assert "rank 1: error ZeroDivisionError: division by zero" in err and "step    5/6" not in out


# ------------------------------------------------------------------------------------ bad input

BAD = {
    "another size": (["--resume", "--model", "gpt2"], "with model tiny, this run has gpt2"),
    "no whole batch": (["--total-batch", 500], "the next one is 512"),
    "no folder": (["--ckpt-dir", __file__], f"{__file__}: File exists"),
    "no model": (["--init", "/none"], "no model in /none ([Errno 2] No such file"),
}


@pytest.mark.parametrize("trouble", BAD)
def test_bad_input_is_one_line(trouble, alone, one, tmp_path):
    flags, said = BAD[trouble]
    if trouble == "another size":
        shutil.copytree(one / "ckpt", tmp_path / "ckpt")
    status, out, err = alone(*flags)
    assert status == 2 and "step  " not in out
    assert err.startswith("error ") and said in err and err.count("\n") == 1


@pytest.mark.slow
def test_bad_input_is_one_line_of_rank_0(job, tmp_path):
    _, err = finish(job(tmp_path, "--data", "/none"), status=1)
    own, *report = re.split(r"^[WE]\d{4} .*torch/distributed/elastic", err, flags=re.MULTILINE)
    assert len(re.findall(r"error[: ]", own)) == 1 and "Traceback" not in own, own
    assert "exitcode  : 2" in "".join(report)


def test_two_ranks_need_two_gpus(card, monkeypatch, capsys):
    card("T4")
    monkeypatch.setattr(ranks, "LOCAL_WORLD", 2)
    with pytest.raises(SystemExit, match="2"):
        ranks.parse("", [])
    said = "error torchrun started 2 processes, found 1 CUDA device(s): --nproc_per_node=1, or"
    assert capsys.readouterr().err.startswith(said)


def test_a_rank_with_another_pytorch_says_so(shard, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "on_rank_0", lambda here: here() and "torch 2.9.0")
    with pytest.raises(BadInput, match=r"this rank has .*; rank 0 torch 2.9.0: give every machine"):
        ranks.prepare(ranks.parse("", command_line(shard, tmp_path)), print)


# ---------------------------------------------------------------------------------------- flags


def test_peak_rate_warm_up_and_a_position_table_as_asked(alone, tmp_path):
    """Also: --resume where there is nothing to go on from says so."""
    flags = ["--batch-size", 1, "--seq-len", 1100, "--total-batch", 1100, "--eval-every", 0]
    status, out, err = alone(*flags, "--steps=3", "--max-lr=3e-3", "--warmup=2", "--resume")
    assert status == 0 and "starting from the beginning" in out, out + err
    rates = [step["lr"] for step in last_log(tmp_path).steps]
    assert rates == pytest.approx([1.5e-3, 3e-3, 3e-4])
