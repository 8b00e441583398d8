"""The held-out loss before training, --steps 0, and what RESULT and people are told of it."""

import pytest
from jobs import last_log, losses

from ladder.cli import parse_ddp_args
from ladder.log import read_log


def test_held_out_loss_before_training_and_in_result(alone, one, tmp_path):
    """Training is the same, bit for bit, as if nothing had been validated on the way."""
    out, _ = alone("--eval-every", 3)
    log = last_log(tmp_path)
    found = {val["step"]: val["loss"] for val in log.vals}
    assert [*found] == [0, 3, 6]
    assert found[0] > found[3] > found[6]
    assert log.result["val_loss"] == log.result["best_val_loss"]
    assert log.result["val_loss"] == pytest.approx(found[6], abs=1e-6)
    assert losses(tmp_path) == losses(one)
    assert f", validation loss {found[6]:.4f} (best {found[6]:.4f})" in out


def test_no_step_validates_what_one_starts_from(alone, tmp_path):
    """No folder, no checkpoint; a best model has the loss that it was saved with."""
    alone("--steps", 2)
    trained = last_log(tmp_path).vals[-1]["loss"]
    other = tmp_path / "other"
    out, _ = alone("--steps", 0, "--init", tmp_path / "ckpt", "--ckpt-dir", other)
    assert not other.exists()
    *_, path = sorted((tmp_path / "runs").glob("*.log"))
    log = read_log(path, ended=False)
    (val,) = log.vals
    assert val["step"] == 0 and val["loss"] == pytest.approx(trained, abs=2e-3)  # padding rows
    assert out.splitlines()[-1].startswith("val   step=0 loss=") and not log.steps


def test_the_best_model_is_better_than_what_training_starts_from(alone, tmp_path):
    alone("--steps", 2, "--max-lr", 1e-30)
    log = last_log(tmp_path)
    assert not (tmp_path / "ckpt" / "best").exists()
    assert log.result["best_val_loss"] == pytest.approx(log.vals[0]["loss"], abs=1e-5)


def test_the_log_is_whole_beside_the_checkpoints(alone, tmp_path):
    alone("--steps", 2)
    (beside,) = (tmp_path / "ckpt").glob("*.log")
    (log,) = (tmp_path / "runs").glob("*.log")
    assert beside.read_bytes() == log.read_bytes()


@pytest.mark.parametrize(("steps", "warmup"), [(0, 1), (50, 10), (9999, 250)])
def test_the_warm_up_is_a_fifth_but_not_of_a_long_run(steps, warmup):
    assert parse_ddp_args("", ["--device", "cpu", "--steps", str(steps)]).warmup == warmup
