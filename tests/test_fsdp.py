"""fsdp_run.py: ddp_run.py's training, files and restarts; each rank has a shard of the model."""

# ruff: noqa: F811 (fixtures of test_ddp.py)

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import test_ddp
import torch
from conftest import ROOT, load
from test_checkpoint import test_a_run_starts_from_the_best_of_another, trained  # noqa: F401
from test_ddp import (  # noqa: F401 (those that are tests run here with fsdp_run.py)
    alone,
    finish,
    job,
    last_log,
    losses,
    one,
    smaller,
    test_a_run_that_was_cut_goes_on,
    test_as_users_leave_the_flags_but_for_the_size,
    test_bad_input_is_one_line_of_rank_0,
    test_killed_ranks_restart_the_job_from_its_last_checkpoint,
    test_one_rank_that_fails_ends_all_and_says_why,
    test_weights_that_became_nan_are_not_saved,
    two,
)

from ladder import checkpoint, weights
from ladder.corpus import Corpus

FSDP = load(ROOT / "fsdp_run.py")


@pytest.fixture(scope="module", autouse=True)
def under_torchrun():
    """`job`, and so `two`, start fsdp_run.py; `one` is ddp_run.py's run, in one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_ddp, "WRAPPER", test_ddp.WRAPPER.replace("ddp_run", "fsdp_run"))
        yield


@pytest.fixture(autouse=True)
def in_this_process(smaller, one, monkeypatch):
    """`alone` runs fsdp_run.py."""
    monkeypatch.setattr(test_ddp, "load", lambda path: load(ROOT / "fsdp_run.py"))


def half_of(folder, path):
    """Copy to `path` what a run had left after half of its steps."""
    shutil.copytree(folder / "ckpt", path, ignore=shutil.ignore_patterns("step_000006.pt"))


def test_two_ranks_train_as_ddp_and_leave_its_files(one, two):
    ours, theirs = last_log(two), last_log(one)
    assert losses(two) == pytest.approx(losses(one), abs=5e-6)
    assert ours.vals[-1]["loss"] == pytest.approx(theirs.vals[-1]["loss"], abs=5e-6)
    norms = [[step["norm"] for step in log.steps] for log in (ours, theirs)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)
    saved, expected = (checkpoint.read(x / "ckpt" / "step_000003.pt") for x in (two, one))
    assert {**saved, "model": 0, "optimizer": 0} == {**expected, "model": 0, "optimizer": 0}
    assert saved["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    moments = [x["optimizer"]["state"] for x in (saved, expected)]
    torch.testing.assert_close(*moments, rtol=1e-2, atol=1e-6)
    torch.testing.assert_close(saved["model"], expected["model"], rtol=1e-2, atol=2e-3)
    sizes = [(x / "ckpt" / "step_000003.pt").stat().st_size for x in (two, one)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)  # tied weights once
    best = [weights.load(str(x / "ckpt")) for x in (two, one)]
    assert best[0][0] == best[1][0] and best[0][1].keys() == best[1][1].keys()


def test_ddp_and_fsdp_go_on_from_each_other(alone, one, two, tmp_path, monkeypatch):
    """On another number of ranks."""
    for folder, script in ((one, "fsdp_run.py"), (two, "ddp_run.py")):
        half_of(folder, tmp_path / script)
        monkeypatch.setattr(test_ddp, "load", lambda path, script=script: load(ROOT / script))
        assert alone("--resume", "--ckpt-dir", tmp_path / script, "--ckpt-every", 3)[0] == 0
        again = {step["step"]: step["loss"] for step in last_log(tmp_path).steps}
        assert again == pytest.approx({n: losses(one)[n] for n in (4, 5, 6)}, abs=5e-6)


def test_ranks_evaluate_all_rows_in_as_many_batches(monkeypatch):
    """Eleven rows in batches of two on four ranks: of the last eight places five are empty."""
    text, sizes, losses = Corpus("text", "0123", [np.arange(99, dtype=np.uint16)]), [], []
    args = SimpleNamespace(batch_size=2, seq_len=4, dtype="float32", device=torch.device("cpu"))
    monkeypatch.setattr(FSDP, "WORLD", 4)
    monkeypatch.setattr(FSDP, "reduced", lambda value, op: value)

    def model(x, y):
        sizes.append(len(x))
        return None, x.float().mean()

    for rank in range(4):
        monkeypatch.setattr(FSDP, "RANK", rank)
        losses.append(FSDP.evaluate(model, text, 11, args))
    assert sizes == [2, 2, 2, 1, 2, 1, 2, 1] and sum(losses) == pytest.approx(np.arange(44).mean())


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
