"""fsdp_run.py: ddp_run.py's training, files and restarts; each rank has a shard of the model."""

import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import load
from jobs import finish, last_log, losses, same_training
from torch.nn import functional as F

from ladder import checkpoint, weights
from ladder.corpus import Corpus
from ladder.files import ROOT


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
    shape, best = weights.load(str(two / "ckpt"))
    right, reference = weights.load(str(one / "ckpt"))
    assert shape == right and best.keys() == reference.keys()


def test_ddp_and_fsdp_go_on_from_each_other(alone, one, two, tmp_path):
    """On another number of ranks."""
    for folder, name in ((one, "fsdp_run.py"), (two, "ddp_run.py")):
        shutil.copytree(folder / "ckpt", tmp_path / name)
        (tmp_path / name / "step_000006.pt").unlink()
        alone("--resume", "--ckpt-dir", tmp_path / name, module=load(ROOT / name))
        again = last_log(tmp_path).steps
        assert [step["step"] for step in again] == [4, 5, 6]
        for step in again:
            assert step["loss"] == pytest.approx(losses(one)[step["step"]], abs=5e-6)


def test_ranks_evaluate_all_rows_in_as_many_batches(monkeypatch):
    """Eleven rows in batches of two on four ranks: of the last eight places five are empty."""
    fsdp_run = load(ROOT / "fsdp_run.py")
    tokens = np.arange(99, dtype=np.uint16) % 7
    text = Corpus("text", "0123", [tokens])
    args = SimpleNamespace(batch_size=2, seq_len=4, device=torch.device("cpu"))
    table = torch.randn(7, 7)
    sizes = []
    losses = []
    monkeypatch.setattr(fsdp_run, "WORLD_SIZE", 4)
    monkeypatch.setattr(fsdp_run, "all_gather", lambda value: [[value]])

    def model(x):
        sizes.append(len(x))
        return table[x], None

    for rank in range(4):
        monkeypatch.setattr(fsdp_run, "RANK", rank)
        losses.append(fsdp_run.evaluate(model, text, 11, args, nullcontext()))
    assert sizes == [2, 2, 2, 1, 2, 1, 2, 1]
    ids = torch.arange(45) % 7
    expected = F.cross_entropy(table[ids[:-1]], ids[1:])
    assert sum(losses) == pytest.approx(expected.item(), abs=1e-6)


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
