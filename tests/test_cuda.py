"""What only a CUDA GPU can show. Elsewhere these are reported as skipped."""

import json
import os
import shutil

import pytest
import torch
from conftest import ON_CUDA, load, run_script, rung
from test_recordings import expected, one_fused
from test_rungs import enlarged, random_batch

from ladder.commands.gemm import CLOCKS, clocks
from ladder.commands.log import read_log
from ladder.commands.scripts import all_scripts
from ladder.machine import half_precision

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")
RUNGS = range(len(all_scripts()))
LOSS = 2e-3  # nats: rounding moves a loss less, a mistake more
# Rungs 03 and 04, which are not compiled, round each log-probability of the first loss (10.8 nats)
# to bfloat16, which has steps of 2^-4 there: by up to half a step, with a standard deviation of
# 2^-4 / sqrt(12). The loss is the mean of B * T = 256 of them. Chance exceeds four standard
# deviations of that, 4.5e-3, once in 16,000 comparisons (and 2e-3 once in 13).
ROUNDED_LOSS = 4 * 2**-4 / (12 * 2 * 128) ** 0.5


def half():
    """What the rungs from 03 on multiply on this GPU."""
    return str(half_precision(CUDA)).removeprefix("torch.")


def has_tf32():
    return torch.cuda.get_device_capability() >= (8, 0)


@pytest.mark.parametrize("number", RUNGS)
def test_effective_line_on_cuda(number, cuda_log):
    log = cuda_log(number)
    found = {**log.effective, "attention": one_fused(log.effective["attention"])}
    assert found.pop("compile_cache", None) in (("cold", "warm") if number >= 5 else (None,))
    assert found.pop("matmul") == ("tf32" if number >= 2 and has_tf32() else "fp32")
    found.pop("loss_scale", None)
    assert found == {**expected(number), "autocast": half() if number >= 3 else "off"}
    assert 0 < log.result["peak_bytes"] < torch.cuda.get_device_properties(0).total_memory


@pytest.mark.parametrize("number", [2, 3, 5, 6, 10])
def test_rounding_on_cuda(number, cuda_log):
    before, after = (cuda_log(n).steps[0]["loss"] for n in (number - 1, number))
    # 03 begins to round the loss, and compiled code, from 05 on, keeps it in FP32.
    assert after == pytest.approx(before, abs=ROUNDED_LOSS if number in (3, 5) else LOSS)


def as_in(number, model):
    """The model under a rung's precision, and compiled where that rung is: (x, y) -> its result."""
    torch.set_float32_matmul_precision("high" if number >= 2 else "highest")
    model = torch.compile(model) if number >= 5 else model

    def forward(x, y):
        with torch.autocast(CUDA.type, half_precision(CUDA), enabled=number >= 3):
            return model(x, y)

    return forward


def error(found, reference):
    """|found - reference| / |reference|."""
    found, reference = (t.detach().float().cpu() for t in (found, reference))
    return ((found - reference).norm() / reference.norm()).item()


def rounding(number):
    """The error that a rung's precision may bring: FP32's, TF32's or bfloat16's."""
    return 1e-5 if number < 2 else 2e-3 if number < 3 else 2e-2


@pytest.mark.parametrize("number", RUNGS)
def test_logits_are_those_of_the_baseline_on_a_cpu(number):
    x, y = random_batch(T=128)
    logits, _ = as_in(number, enlarged(number).to(CUDA))(x.to(CUDA), y.to(CUDA))
    assert error(logits, enlarged(0)(x, y)[0]) < rounding(number)


@pytest.mark.parametrize("number", [0, 10])
def test_more_logits_than_32_bits_can_count(number):
    """The whole batch at once, and its halves, which have fewer than 2^31, not compiled."""
    if (free := torch.cuda.mem_get_info()[0]) < 60e9:
        pytest.skip(f"needs 60 GB of free GPU memory, here are {free / 1e9:.0f}")
    model = enlarged(number, n_layer=1).to(CUDA)
    x, y = (t.to(CUDA) for t in random_batch(B=48, T=1024))
    assert x.numel() * 50304 > 2**31 > x[:24].numel() * 50304

    def step(forward, rows):
        model.zero_grad()
        logits, loss = forward(x[rows], y[rows])
        loss.backward()
        return logits[-1].detach().clone(), loss.detach(), [p.grad for p in model.parameters()]

    logits, loss, grads = step(as_in(number, model), slice(None))
    plain = as_in(min(number, 4), model)  # rung 04 is the last that is not compiled
    halves = [step(plain, rows) for rows in (slice(24), slice(24, None))]
    assert error(logits, halves[1][0]) < rounding(number)
    assert loss.item() == pytest.approx(sum(half[1].item() for half in halves) / 2, rel=1e-3)
    for found, *parts in zip(grads, *(half[2] for half in halves), strict=True):
        assert error(found, sum(parts) / 2) < rounding(number)


@pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no nvidia-smi here")
def test_clocks_are_read_while_the_gpu_works():
    found = dict(pair.split(" ", 1) for pair in clocks(CUDA).split(", "))
    assert list(found) == CLOCKS.split(",")
    assert int(found["clocks.sm"].removesuffix(" MHz")) > 0
    assert 0 < int(found["temperature.gpu"]) < 120


def test_the_clock_waits_for_the_device():
    """A launch returns long before the work is done; after synchronize() it is done."""
    module = load(rung(0))
    a = torch.randn(8192, 8192, device=CUDA)
    done = torch.cuda.Event()
    for _ in range(20):
        a = a @ a / 8192
    done.record()
    assert not done.query()
    module.synchronize(CUDA)
    assert done.query()


def run_ddp(shard, folder, ranks, *flags):
    """ddp_run.py over NCCL: what it printed, and its last log."""
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs, here is {torch.cuda.device_count()}")
    words = ["torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "ddp_run.py"]
    words += [*ON_CUDA, "--data", shard, "--log-dir", folder / "runs", *flags]
    done = run_script("-m", *words, "--total-batch", 512, "--eval-every", 0)
    assert done.returncode == 0, done.stderr
    return done.stdout, read_log(max((folder / "runs").glob("*.log"), key=os.path.getmtime))


@pytest.mark.parametrize("ranks", [1, 2])
def test_ddp_run_over_nccl_saves_and_goes_on(ranks, shard, tmp_path):
    flags = ["--ckpt-dir", tmp_path / "ckpt", "--ckpt-every", 3, "--resume", "--steps"]
    for steps in (3, 6):
        out, log = run_ddp(shard, tmp_path, ranks, *flags, steps)
    assert "going on after step 3" in out
    assert [step["step"] for step in log.steps] == [4, 5, 6]
    assert log.run["total_batch"] == "512" and log.effective["optimizer"] == "fused"


def test_two_ranks_over_nccl_train_as_one(shard, tmp_path):
    flags = ["--dtype", "float32", "--steps", 5, "--ckpt-dir", tmp_path / "ckpt"]
    (_, two), (_, one) = (run_ddp(shard, tmp_path / str(n), n, *flags) for n in (2, 1))
    assert (one.run["ranks"], two.run["ranks"]) == ("1", "2")
    losses = [[step["loss"] for step in log.steps] for log in (one, two)]
    assert losses[1] == pytest.approx(losses[0], abs=LOSS)


def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = ["--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 9, 10, *ON_CUDA, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "10_fused_adamw.json").read_text())
    names = " ".join(kernel["name"] for kernel in found["kernels"])
    assert "triton_" in names and "aten::" not in names
    assert found["self_ms"] > 0 and all(ms > 0 for ms in found["median_ms"].values())
    recording = json.loads((tmp_path / "out" / "10_fused_adamw.recording.json").read_text())
    on_gpu = {name for name, device, note, *_ in recording["events"] if device == "CUDA"}
    assert {kernel["name"] for kernel in found["kernels"]} <= on_gpu
