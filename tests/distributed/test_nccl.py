"""Both on GPUs, over NCCL."""

import pytest
import torch
from helpers import ON_CUDA, run_script
from jobs import last_log


@pytest.mark.cuda
@pytest.mark.parametrize("script", ["train.py", "fsdp_run.py"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_over_nccl_saves_and_goes_on(ranks, script, shard, tmp_path):
    gpus = torch.cuda.device_count()
    if gpus < ranks:
        pytest.skip(f"needs {ranks} GPUs, here is {gpus}")
    words = ["torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", script]
    words += [*ON_CUDA, "--data", shard, "--log-dir", tmp_path / "runs", "--total-batch", 512]
    words += ["--ckpt-dir", tmp_path / "ckpt", "--ckpt-every", 3, "--eval-every", 0, "--resume"]
    for steps in (3, 6):
        done = run_script("-m", *words, "--steps", steps)
        assert done.returncode == 0, done.stderr
    assert "resumed after step 3" in done.stdout
    log = last_log(tmp_path)
    assert [step.step for step in log.steps] == [4, 5, 6]
    assert log.run["total_batch"] == "512" and log.effective["optimizer"] == "fused"
    assert log.effective["compiled"] == "yes"
