"""Runs of train.py and fsdp_run.py, on one rank or several."""

import os

import pytest
from helpers import SMALL, SMALLER

from ladder import checkpoint
from ladder.log import read_log

STEPS = 6
# Nine held-out rows: on two ranks of B=2, the last batch of rank 1 is empty.
EXACT = ["--dtype=float32", "--no-compile", "--total-batch=512", "--val-tokens=576"]
EXACT += ["--steps", STEPS]
TWO = ["--standalone", "--nproc_per_node=2"]


# Runs at(step) on each rank while the learning rate of `step` is computed.
WRAPPER = f"""
import os, signal, torch, ladder.cli
import MODULE as script
from MODULE import RANK
ladder.cli.MODELS["tiny"] = {SMALLER}
CODE
real = script.get_lr
script.get_lr = lambda step, *schedule: at(step) or real(step, *schedule)
script.main()
"""


def command_line(shard, folder, *flags, exact=EXACT):
    """The flags of a run whose log and checkpoints go into `folder`."""
    paths = ["--data", shard, "--log-dir", folder / "runs", f"--ckpt-dir={folder / 'ckpt'}"]
    return [str(word) for word in (*SMALL, *paths, *exact, *flags)]


def finish(process, status=0):
    """Wait until it ends with `status`. Returns its stdout and stderr."""
    try:
        out, err = process.communicate(timeout=900)
    finally:
        process.terminate()  # torchrun ends its ranks then
    assert process.returncode == status, out + err
    return out, err


def same_training(folder, other):
    """Assert that two runs differ by rounding: their losses, held-out losses and norms."""
    assert losses(folder) == pytest.approx(losses(other), abs=5e-6)
    log, expected = last_log(folder), last_log(other)
    assert log.vals[-1].loss == pytest.approx(expected.vals[-1].loss, abs=5e-6)
    for step, right in zip(log.steps, expected.steps, strict=True):
        assert step.more["norm"] == pytest.approx(right.more["norm"], rel=1e-3)  # before clipping


def last_log(folder):
    return read_log(max((folder / "runs").glob("*.log"), key=os.path.getmtime))


def losses(folder):
    """By step, of all logs in the folder."""
    found = {}
    for path in (folder / "runs").glob("*.log"):
        for step in read_log(path).steps:
            found[step.step] = step.loss
    return found


def last_weights(folder):
    """Those of its last checkpoint."""
    return checkpoint.read(folder / "ckpt" / f"step_{STEPS:06d}.pt")["model"]
