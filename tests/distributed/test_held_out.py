"""The held-out loss before training, --steps 0, and what RESULT and people are told of it."""

import json

import pytest
from jobs import EXACT, last_log

from ladder.log import read_log
from ladder.ranks import parse


def test_held_out_loss_before_training_and_in_result(alone, tmp_path):
    out, _ = alone("--eval-every", 3)
    log = last_log(tmp_path)
    losses = [val["loss"] for val in log.vals]
    assert [val["step"] for val in log.vals] == [0, 3, 6]
    assert losses[0] > losses[1] > losses[2]
    assert log.result["val_loss"] == log.result["best_val_loss"]
    assert log.result["val_loss"] == pytest.approx(losses[2], abs=1e-6)
    *_, people = out.splitlines()
    assert f"validation loss {losses[2]:.4f} (best {losses[2]:.4f})" in people
    folder = tmp_path / "ckpt"
    assert people.endswith(f"; now: `ladder report {folder}`, `ladder sample {folder}`")


def test_no_step_validates_what_one_starts_from(alone, tmp_path):
    """No folder, no checkpoint; a best model has the loss that it was saved with."""
    alone("--steps", 2)
    trained = last_log(tmp_path).vals[-1]["loss"]
    other = tmp_path / "other"
    flags = ["--steps", 0, "--init", tmp_path / "ckpt", f"--ckpt-dir={other}"]
    out, _ = alone(*flags)
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
    """Also if it lies there anyway."""
    folder = tmp_path / "ckpt"
    alone("--steps", 2)
    alone("--steps", 4, "--resume", "--log-dir", folder)
    first, second = sorted(folder.glob("*.log"))
    (elsewhere,) = (tmp_path / "runs").glob("*.log")
    assert first.read_bytes() == elsewhere.read_bytes()
    lines = second.read_text().splitlines()
    assert len(set(lines)) == len(lines) and json.loads(lines[-1].removeprefix("RESULT "))


@pytest.mark.parametrize(("steps", "warmup"), [(0, 1), (50, 10), (9999, 250)])
def test_the_warm_up_is_a_fifth_but_not_of_a_long_run(steps, warmup):
    assert parse("", ["--device", "cpu", "--steps", str(steps)]).warmup == warmup


def test_losses_are_those_of_a_run_that_does_not_validate(alone, tmp_path):
    losses = []
    for every in (0, 1):
        flags = ["--eval-every", every, "--ckpt-every", 0, "--steps", 3]
        alone(*flags, exact=[*EXACT[:5], *flags])
        losses.append([step["loss"] for step in last_log(tmp_path).steps])
    assert losses[0] == losses[1]
