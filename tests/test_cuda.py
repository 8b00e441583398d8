"""What only a CUDA GPU can show. Elsewhere these are reported as skipped."""

import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, load, run_script, rung
from test_climb import ladder

from ladder.commands.scripts import all_scripts, peer_scripts
from ladder.log import read_log

pytestmark = pytest.mark.cuda
FLAGS = ["--model", "tiny", "--device", "cuda", "--batch-size", "2", "--seq-len", "64"]
ROUNDING = 2e-2  # nats, over five steps of the tiny model


@pytest.fixture(scope="module")
def log_on_cuda(shard, tmp_path_factory):
    logs = {}

    def run(number):
        if number not in logs:
            folder = tmp_path_factory.mktemp("cuda")
            flags = [*FLAGS, "--steps", "5", "--data", shard, "--log-dir", folder]
            done = run_script(rung(number), *flags)
            assert done.returncode == 0, done.stderr
            logs[number] = read_log(next(folder.glob("*.log")))
        return logs[number]

    return run


@pytest.mark.parametrize("number", range(len(all_scripts())))
def test_effective_line_on_cuda(number, log_on_cuda):
    log = log_on_cuda(number)
    attention = log.effective.pop("attention")
    assert log.effective.pop("compile_cache", None) in (
        ("cold", "warm") if number >= 5 else (None,)
    )
    assert attention in (("flash", "cudnn", "efficient") if number >= 6 else ("math",))
    assert log.effective == {
        "matmul": "high(setting)" if number >= 2 else "highest(setting)",
        "autocast": "bfloat16" if number >= 3 else "off",
        "compiled": "yes" if number >= 5 else "no",
        "optimizer": "fused" if number >= 10 else "foreach",
    }
    assert 0 < log.result["peak_bytes"] < torch.cuda.get_device_properties(0).total_memory


@pytest.mark.parametrize("number", [2, 3, 5, 6, 10])
def test_rounding_on_cuda(number, log_on_cuda):
    before, after = ([step["loss"] for step in log_on_cuda(n).steps] for n in (number - 1, number))
    assert after == pytest.approx(before, abs=ROUNDING)


def test_tf32_really_rounds():
    """2^-12 is lost when 1 + 2^-12 is rounded to TF32's 10 bits, and kept by FP32."""
    a = torch.full((256, 256), 1 + 2**-12, device="cuda")
    one = torch.eye(256, device="cuda")
    torch.set_float32_matmul_precision("highest")
    assert (a @ one)[0, 0].item() == 1 + 2**-12
    torch.set_float32_matmul_precision("high")
    assert (a @ one)[0, 0].item() != 1 + 2**-12


def test_the_clock_waits_for_the_device():
    """A launch returns long before the work is done; after synchronize() it is done."""
    module = load(rung(0))
    device = torch.device("cuda")
    a = torch.randn(8192, 8192, device=device)
    done = torch.cuda.Event()
    for _ in range(20):
        a = a @ a / 8192
    done.record()
    assert not done.query()
    module.synchronize(device)
    assert done.query()


def test_ddp_run_over_nccl_saves_and_goes_on(shard, tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1"]
    words += [ROOT / "ddp_run.py", *FLAGS, "--data", shard, "--log-dir", tmp_path / "runs"]
    words += ["--total-batch", 512, "--eval-every", 0, "--ckpt-dir", tmp_path / "ckpt"]
    words = [*map(str, words), "--ckpt-every", "3", "--resume", "--steps"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for steps in ("3", "6"):
        done = subprocess.run([*words, steps], env=env, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
    assert "going on after step 3" in done.stdout
    log = read_log(max((tmp_path / "runs").glob("*.log"), key=os.path.getmtime))
    assert [step["step"] for step in log.steps] == [4, 5, 6]
    assert log.run["total_batch"] == "512" and log.effective["optimizer"] == "fused"


def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    done = ladder(
        "profile", 9, 10, *FLAGS, "--steps", 3, "--data", shard, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "10_fused_adamw.json").read_text())
    names = " ".join(kernel["name"] for kernel in found["kernels"])
    assert "triton_" in names and "aten::" not in names
    assert found["self_ms"] > 0 and all(ms > 0 for ms in found["median_ms"].values())


def test_the_compiled_peer(shard, tmp_path):
    pytest.importorskip("transformers")
    flags = [*FLAGS, "--steps", "5", "--data", shard, "--log-dir", tmp_path]
    done = run_script(peer_scripts()[0], *flags)
    assert done.returncode == 0, done.stderr
    log = read_log(next(tmp_path.glob("*.log")))
    assert (log.effective["autocast"], log.effective["compiled"]) == ("bfloat16", "yes")
    assert log.effective["optimizer"] == "fused"
