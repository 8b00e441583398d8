"""What train.py and fsdp_run.py share: how runs go on, end and fail. Each test runs both."""

import math
from functools import partial

import pytest
import torch
from helpers import AUTOCAST, load
from jobs import STEPS, TWO, finish, last_log, last_weights, losses
from models import losses_of, saved_model

from ladder import checkpoint
from ladder.batches import Batches
from ladder.checkout import ROOT
from ladder.corpus import load_splits
from ladder.disk import lock
from ladder.errors import UsageError


@pytest.fixture(scope="module", params=["train.py", "fsdp_run.py"])
def script(request):
    return request.param


CUT = {
    "with its flags": ([], []),
    "shuffled, with another batch": (["--shuffle", 3], ["--batch-size", 4]),
    "in float16": (["--dtype", "float16"], []),
}


@pytest.mark.parametrize("how", CUT)
def test_a_run_that_was_cut_goes_on(how, alone, one, tmp_path, monkeypatch):
    """Bit for bit, if the batch is the same: with its order of rows and its scale of the loss."""
    flags, other = CUT[how]
    scaler = partial(torch.amp.GradScaler, init_scale=2.0**20)  # too large for the first step
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    alone(*flags, "--ckpt-every", 3)
    uncut = last_log(tmp_path)
    expected = last_weights(tmp_path)
    (tmp_path / "ckpt" / "step_000006.pt").unlink()
    alone(*flags, *other, "--ckpt-every", 3, "--resume")
    again = last_log(tmp_path)
    if other:
        assert losses_of(again) == pytest.approx(losses_of(uncut)[3:], abs=5e-6)
    else:
        torch.testing.assert_close(last_weights(tmp_path), expected, rtol=0, atol=0)
    moved = abs(losses_of(uncut)[0] - losses(one)[1])
    assert (moved > 1e-3) == ("--shuffle" in flags)
    scale = uncut.result.get("loss_scale", 0)
    assert scale == again.result.get("loss_scale", 0) < 2**20


@pytest.mark.slow
def test_as_users_leave_the_flags_but_for_the_size(job, one, tmp_path):
    """Compiled, and in bfloat16, on two ranks. Validation is in no profile.

    All LayerNorms are compiled: of fsdp_run.py the last one too, and with it the head and the loss.
    """
    finish(job(tmp_path, "--eval-every", 1, exact=["--total-batch", 512, "--steps", STEPS]))
    log = last_log(tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(one), abs=0.02)
    assert (log.effective["autocast"], log.effective["compiled"]) == (AUTOCAST, "yes")


def test_recompute_runs_blocks_twice_at_the_same_loss(script, alone, one, tmp_path, monkeypatch):
    module = load(ROOT / script)
    real = module.Block.forward
    ran = []
    monkeypatch.setattr(module.Block, "forward", lambda block, x: ran.append(x) or real(block, x))
    alone("--recompute", "--eval-every", 0, module=module)
    assert len(ran) == STEPS * 4 * 2 * 2  # four batches, two blocks, two passes
    assert losses(tmp_path) == pytest.approx(losses(one), abs=5e-6, rel=0)


def test_weights_that_became_nan_are_not_saved(alone, tmp_path):
    flags = ["--ckpt-every", 1, "--eval-every", 0]
    _, err = alone(*flags, at=lambda step: math.nan, status=1)
    assert "is not finite after step 1: it is not saved" in err
    assert not checkpoint.checkpoints_in(tmp_path / "ckpt")


@pytest.mark.slow
def test_killed_ranks_restart_the_job_from_its_last_checkpoint(job, two, tmp_path):
    """Rank 1 dies in a step, then rank 0 while it writes a checkpoint."""
    code = """
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def at(step):
    if (os.environ["TORCHELASTIC_RESTART_COUNT"], RANK, step) == ("0", 1, 3):
        kill()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        os.fsync = kill
"""
    flags = ["--ckpt-every", 2, "--resume"]
    out, _ = finish(job(tmp_path, *flags, torchrun=[*TWO, "--max-restarts=2"], code=code))
    assert out.count("note  resumed after step 2") == 2
    assert last_log(tmp_path).steps[-1].loss == losses(two)[STEPS]
    assert not [*(tmp_path / "ckpt").glob("*.tmp")]


def test_a_run_starts_from_exactly_the_weights_of_init(shard, alone, tmp_path):
    """Its first loss is what they give on its first batch; a checkpoint to resume comes first."""
    model = saved_model(tmp_path)
    text, _ = load_splits(str(shard), print)
    loss = model(*next(Batches(text, 2, 64)))
    flags = ["--init", tmp_path, "--total-batch", 128]
    alone(*flags, "--steps", 1)
    assert losses(tmp_path)[1] == pytest.approx(loss.item(), abs=1e-5)
    alone(*flags, "--steps", 2, "--resume")
    assert [step.step for step in last_log(tmp_path).steps] == [2]


def test_what_has_ended_is_validated_and_nothing_else(alone, tmp_path):
    folder = tmp_path / "ckpt"
    alone("--eval-every", 0)
    (last,) = checkpoint.checkpoints_in(folder)
    written = last.stat().st_mtime_ns
    out, _ = alone("--resume", "--eval-every", 0)
    assert "note  nothing left to train: step 6 is done, --steps is 6\n" in out
    assert "val  " not in out and "RESULT" not in out
    alone("--resume", "--eval-every", 4)
    assert (folder / "best" / "model.safetensors").exists()
    assert last.stat().st_mtime_ns == written


def test_a_validation_that_fails_costs_no_step(script, alone, tmp_path, monkeypatch):
    """It is made up for when the run goes on."""
    module = load(ROOT / script)
    real = module.evaluate
    flags = ["--eval-every", 4, "--ckpt-every", 4]
    found = [(9.0, 64)]  # before training

    def evaluate(*_):
        if not found:
            raise UsageError("no memory left")
        return found.pop()

    monkeypatch.setattr(module, "evaluate", evaluate)
    alone(*flags, module=module, status=2)
    monkeypatch.setattr(module, "evaluate", real)
    alone(*flags, "--resume", module=module)
    assert [val.step for val in last_log(tmp_path).vals] == [4, 6]
    assert [step.step for step in last_log(tmp_path).steps] == [5, 6]


# ------------------------------------------------------------------- held-out loss


def test_validation_runs_what_is_compiled_on_batches_of_one_size(
    script, alone, tmp_path, monkeypatch
):
    """Nine rows in five batches of two: what fills the last one does not count."""
    shapes = set()

    def compiled(function):
        def called(*inputs):
            if not torch.is_grad_enabled():
                shapes.add(inputs[0].shape[0])
            return function(*inputs)

        return called

    def validated(*flags):
        flags = ["--ckpt-every", 0, "--steps", 1, "--val-tokens", 576, *flags]
        alone(*flags, exact=["--dtype=float32"])
        return last_log(tmp_path).vals[0]

    expected = validated("--no-compile", "--total-batch", 64, "--batch-size", 1)
    assert not shapes
    monkeypatch.setattr(torch, "compile", compiled)
    found = validated("--total-batch", 128)
    assert found.loss == pytest.approx(expected.loss, abs=5e-6)
    tokens = {128} if script == "fsdp_run.py" else set()  # it compiles the loss by itself
    assert found.tokens == expected.tokens == 576 and shapes == {2} | tokens


def test_held_out_loss_before_training_and_in_result(script, alone, one, tmp_path):
    """Training is the same, bit for bit, as if nothing had been validated on the way.

    The folder is the run's alone, until it ends.
    """

    def another_run(step):
        with pytest.raises(UsageError, match="another run is at work"):
            lock(tmp_path / "ckpt")

    alone("--eval-every", 3, at=another_run)
    lock(tmp_path / "ckpt").close()
    log = last_log(tmp_path)
    found = {val.step: val.loss for val in log.vals}
    assert [*found] == [0, 3, 6]
    assert found[0] > found[3] > found[6]
    assert log.result["val_loss"] == log.result["best_val_loss"]
    assert log.result["val_loss"] == pytest.approx(found[6], abs=1e-6)
    rounding = 0 if script == "train.py" else 5e-6
    assert losses(tmp_path) == pytest.approx(losses(one), abs=rounding, rel=0)
    (beside,) = (tmp_path / "ckpt").glob("*.log")
    (path,) = (tmp_path / "runs").glob("*.log")
    assert beside.read_bytes() == path.read_bytes()
