"""fsdp_run.py: train.py's training, files and restarts; each rank has a shard of the model."""

import shutil

import pytest
import torch
from helpers import load
from jobs import finish, last_log, losses, same_training

from ladder import checkpoint, weights
from ladder.checkout import ROOT


@pytest.fixture(scope="module")
def script():
    return "fsdp_run.py"


def test_two_ranks_train_as_ddp_and_leave_its_files(one, two):
    same_training(two, one)
    saved = checkpoint.read(two / "ckpt" / "step_000003.pt")
    expected = checkpoint.read(one / "ckpt" / "step_000003.pt")
    torch.testing.assert_close(saved.pop("model"), expected.pop("model"), rtol=1e-2, atol=2e-3)
    optimizer = saved.pop("optimizer")
    moments = expected.pop("optimizer")
    torch.testing.assert_close(optimizer.pop("state"), moments.pop("state"), rtol=1e-2, atol=1e-6)
    assert (saved, optimizer) == (expected, moments)
    shape, best, _ = weights.load(str(two / "ckpt"))
    right, reference, _ = weights.load(str(one / "ckpt"))
    assert shape == right and best.keys() == reference.keys()


def test_ddp_and_fsdp_go_on_from_each_other(alone, one, two, tmp_path):
    """On another number of ranks."""
    for folder, name in ((one, "fsdp_run.py"), (two, "train.py")):
        shutil.copytree(folder / "ckpt", tmp_path / name)
        (tmp_path / name / "step_000006.pt").unlink()
        alone("--resume", "--ckpt-dir", tmp_path / name, module=load(ROOT / name))
        again = last_log(tmp_path).steps
        assert [step.step for step in again] == [4, 5, 6]
        for step in again:
            assert step.loss == pytest.approx(losses(one)[step.step], abs=5e-6)


LIMITED = r"""
import mmap, re, resource
torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)  # a private map counts as data
ladder.cli.MODELS["tiny"] = dict(n_layer=12, n_head=12, n_embd=768, vocab_size=256)
def at(step): pass
if RANK == 1:
    kB = int(re.search(r"VmData:\s+(\d+)", open("/proc/self/status").read())[1])
    resource.setrlimit(resource.RLIMIT_DATA, [kB * 1024 + 1_150_000_000] * 2)
"""


@pytest.mark.slow
def test_a_rank_without_the_memory_for_the_whole_model_trains(job, tmp_path, monkeypatch):
    """86M parameters are 1.38 GB with gradients and moments; rank 1 may take 1.15, also to resume.

    Half of it is its share; PyTorch takes some too, its CUDA build more than the CPU's.

    As it is, the C library would keep most of what is freed.
    """
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "262144")
    finish(job(tmp_path, "--steps", 3, "--ckpt-every", 3, code=LIMITED))
    finish(job(tmp_path, "--steps", 4, "--resume", code=LIMITED))
    assert len(losses(tmp_path)) == 4
