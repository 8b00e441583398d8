"""What only a CUDA GPU can show. Elsewhere these are reported as skipped."""

import json

import pytest
import torch
from conftest import ON_CUDA, last_log, random_batch, relative_error, run_script
from test_recordings import expected, one_fused
from test_rungs import enlarged

from ladder.machine import half_precision
from ladder.measure.scripts import all_scripts

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")
RUNGS = range(len(all_scripts()))
BOTH = ["ddp_run.py", "fsdp_run.py"]


@pytest.mark.parametrize("number", RUNGS)
def test_effective_line_on_cuda(number, cuda_log):
    log = cuda_log(number)
    has_tf32 = torch.cuda.get_device_capability() >= (8, 0)
    half = str(half_precision(CUDA)).removeprefix("torch.")
    found = {**log.effective, "attention": one_fused(log.effective["attention"])}
    assert found.pop("matmul") == ("tf32" if number >= 2 and has_tf32 else "fp32")
    found.pop("loss_scale", None)
    assert found == {**expected(number), "autocast": half if number >= 3 else "off"}
    assert 0 < log.result["peak_bytes"] < torch.cuda.get_device_properties(0).total_memory


@pytest.mark.parametrize("number", RUNGS)
def test_logits_are_those_of_the_baseline_on_a_cpu(number):
    x, y = random_batch(T=128)
    model = enlarged(number).to(CUDA)
    exact, _ = enlarged(0)(x, y)
    torch.set_float32_matmul_precision("high" if number >= 2 else "highest")
    model = torch.compile(model) if number >= 5 else model
    with torch.autocast(CUDA.type, half_precision(CUDA), enabled=number >= 3):
        logits, _ = model(x.to(CUDA), y.to(CUDA))
    rounding = 2e-2  # of bfloat16
    if number == 2:
        rounding = 2e-3  # of TF32
    elif number < 2:
        rounding = 1e-5  # of FP32
    assert relative_error(logits.cpu(), exact) < rounding


def run_on_gpus(script, ranks, shard, folder, *flags):
    """Run a script over NCCL. Returns what it printed, and its last log."""
    gpus = torch.cuda.device_count()
    if gpus < ranks:
        pytest.skip(f"needs {ranks} GPUs, here is {gpus}")
    words = ["torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", script]
    words += [*ON_CUDA, "--data", shard, "--log-dir", folder / "runs", *flags]
    done = run_script("-m", *words, "--total-batch", 512)
    assert done.returncode == 0, done.stderr
    return done.stdout, last_log(folder)


@pytest.mark.parametrize("script", BOTH)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_over_nccl_saves_and_goes_on(ranks, script, shard, tmp_path):
    flags = ["--ckpt-dir", tmp_path / "ckpt", "--ckpt-every", 3, "--eval-every", 0, "--resume"]
    for steps in (3, 6):
        out, log = run_on_gpus(script, ranks, shard, tmp_path, *flags, "--steps", steps)
    assert "resumed after step 3" in out
    assert [step["step"] for step in log.steps] == [4, 5, 6]
    assert log.run["total_batch"] == "512" and log.effective["optimizer"] == "fused"
    assert log.effective["compiled"] == "yes"


@pytest.mark.parametrize("script", BOTH)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_two_ranks_over_nccl_train_as_one(dtype, script, shard, tmp_path):
    """Each against ddp_run.py on one GPU, losses, norms and held-out losses."""
    if dtype == "bfloat16" and half_precision(CUDA) != torch.bfloat16:
        pytest.skip("this GPU has no bfloat16 units")
    flags = ["--dtype", dtype, "--steps", 5, "--eval-every", 5, "--ckpt-every", 0]
    _, two = run_on_gpus(script, 2, shard, tmp_path / "two", *flags)
    _, one = run_on_gpus("ddp_run.py", 1, shard, tmp_path / "one", *flags)
    assert (one.run["ranks"], two.run["ranks"]) == ("1", "2")
    tolerance = 2e-3 if dtype == "float32" else 1e-2  # nats; TF32 rounds float32
    for ours, theirs in zip(two.steps, one.steps, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=tolerance)
        assert ours["norm"] == pytest.approx(theirs["norm"], rel=2e-2)
    assert two.vals[-1]["loss"] == pytest.approx(one.vals[-1]["loss"], abs=tolerance)
    assert two.result.get("loss_scale") == one.result.get("loss_scale")


def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = ["--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 9, 10, *ON_CUDA, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "10_fused_adamw.json").read_text())
    names = " ".join(kernel["name"] for kernel in found["kernels"])
    assert "triton_" in names and "aten::" not in names
    assert found["self_ms"] > 0 and min(found["median_ms"].values()) > 0
