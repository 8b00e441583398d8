"""Both on GPUs, over NCCL."""

import pytest
import torch
from helpers import ON_CUDA, run_script
from jobs import last_log

pytestmark = pytest.mark.cuda

CUDA = torch.device("cuda")
BOTH = ["ddp_run.py", "fsdp_run.py"]


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
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-3), ("float16", 1e-2)])
def test_two_ranks_over_nccl_train_as_one(dtype, tolerance, script, shard, tmp_path):
    """Each against ddp_run.py on one GPU: losses, norms and held-out losses, in nats."""
    flags = ["--dtype", dtype, "--steps", 5, "--eval-every", 5, "--ckpt-every", 0]
    _, two = run_on_gpus(script, 2, shard, tmp_path / "two", *flags)
    _, one = run_on_gpus("ddp_run.py", 1, shard, tmp_path / "one", *flags)
    assert (one.run["ranks"], two.run["ranks"]) == ("1", "2")
    for ours, theirs in zip([*two.steps, *two.vals], [*one.steps, *one.vals], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=tolerance)
    for ours, theirs in zip(two.steps, one.steps, strict=True):
        assert ours["norm"] == pytest.approx(theirs["norm"], rel=2e-2)
    assert two.result.get("loss_scale") == one.result.get("loss_scale")
