"""train.py: the same training in any layout, and processes that are stopped."""

import os
import signal
import socket
import sys

import pytest
from helpers import closed_pipe
from jobs import STEPS, finish, last_log, last_weights, losses, same_training

from ladder import checkpoint


def test_the_same_training_in_any_layout(two, one, alone, tmp_path):
    """Two ranks of two micro-steps, one of four, one of one at four times the batch."""
    alone("--batch-size", 8, "--ckpt-every", STEPS)
    expected = last_weights(two)
    for folder, layout in ((one, ("1", 2)), (tmp_path, ("1", 8))):
        log = last_log(folder)
        assert (log.run["ranks"], log.run["B"]) == layout
        same_training(folder, two)
        for name, w in last_weights(folder).items():
            reference = expected[name].clone()
            # Without gradient but for rounding, which Adam blows up: a key's bias changes nothing.
            if name.endswith("c_attn.bias"):
                C = len(w) // 3
                w[C : 2 * C] = reference[C : 2 * C] = 0
            assert (w - reference).norm() <= 1e-4 * reference.norm() + 1e-7, name


IN_BUCKETS = """
forward = script.GPT.forward
def watched(model, *batch):
    places = [p.grad.untyped_storage().data_ptr() for p in model.parameters()]
    assert len(set(places)) == 1, len(set(places))
    return forward(model, *batch)
script.GPT.forward = watched
def at(step): pass
"""


def test_gradients_are_kept_in_the_buckets_alone(job, tmp_path):
    """One bucket here. Also after a step without a synchronisation, and in the first step."""
    finish(job(tmp_path, "--steps", 3, "--ckpt-every", 0, code=IN_BUCKETS))


# Ranks agree to stop before the line is written, which meets the closed pipe: one step more.
@pytest.mark.parametrize(("name", "done"), [("SIGINT", 3), ("SIGTERM", 4)])
def test_a_run_that_is_stopped_saves_its_step(name, done, alone, tmp_path, monkeypatch):
    """Also where Ctrl-C ended `| tee` before: the next line meets a closed pipe."""

    def stop(step):
        if step == 2 and name == "SIGINT":
            os.kill(os.getpid(), signal.SIGINT)
        elif step == 2:
            monkeypatch.setattr(sys, "stdout", closed_pipe())

    _, err = alone("--eval-every", 1, at=stop, status=128 + signal.Signals[name])
    log = last_log(tmp_path)
    assert [val.step for val in log.vals] == [*range(done)]  # not of the last step
    path = tmp_path / "ckpt" / f"step_{done:06d}.pt"
    assert log.result["status"] == "stopped"
    assert len(log.steps) == done and path.exists()
    assert log.notes[-1].startswith(f"{name}: stopped after step {done}; {path} is kept")
    assert "note  the run ends after this step; a second Ctrl-C ends it at once" in err


def test_a_second_ctrl_c_stops_at_once(alone, tmp_path):
    def twice(step):
        for _ in range(2 * step):
            os.kill(os.getpid(), signal.SIGINT)

    alone(at=twice, status=130)
    assert last_log(tmp_path).result["status"] == "interrupted"
    assert len(losses(tmp_path)) == 1
    assert not checkpoint.checkpoints_in(tmp_path / "ckpt")


@pytest.mark.slow
def test_one_node_goes_on_where_ctrl_c_stopped_two(job, two, tmp_path):
    """They meet over loopback, and all of it is bit for bit what one node does undisturbed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        _, port = probe.getsockname()
    meet = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    code = "def at(step):\n    if step == 2 and RANK == 1: os.kill(os.getpid(), signal.SIGINT)"
    first = job(tmp_path, torchrun=[*meet, "--node-rank=0"], code=code)
    second = job(tmp_path, torchrun=[*meet, "--node-rank=1"], code=code)
    out, err = finish(first, status=1)  # torchrun: rank 0 ended with 130
    assert "traceback : SIGINT: stopped after step " in err
    finish(second)
    done = len(last_log(tmp_path).steps)
    assert f"step_{done:06d}.pt" in out and done < STEPS
    finish(job(tmp_path, "--ckpt-every", 3, "--resume"))
    assert len(last_log(tmp_path).steps) == STEPS - done
    assert losses(tmp_path) == losses(two)


def test_rates_positions_and_held_out_tokens_as_asked(alone, tmp_path):
    """As many whole rows as --val-tokens has, at least one."""
    flags = ["--batch-size", 1, "--seq-len", 1100, "--total-batch", 1100, "--resume"]
    flags += ["--steps=3", "--max-lr=3e-3", "--min-lr=0", "--warmup=2", "--ckpt-every=0"]
    for wanted, tokens in {2300: 2200, 10: 1100}.items():
        out, _ = alone(*flags, "--val-tokens", wanted)
        assert "starting from the beginning" in out
        log = last_log(tmp_path)
        assert log.vals[-1].tokens == tokens
        assert [step.more["lr"] for step in log.steps] == pytest.approx([1.5e-3, 3e-3, 0])
