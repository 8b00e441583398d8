"""What a climb of 100 steps or more says of its losses: how much lower, and how soon as low."""

import numpy as np
import pytest
from climbs import climb_of

from dev.climbs import full_table
from ladder.log import Log, Step
from ladder.measure.losses import steps_to
from ladder.measure.rows import read_climb

SPREAD_BY_ROUND = np.array([[0.0], [0.001], [-0.001]])  # differences are never all the same
TYING = "01_weight_tying"


def as_log(losses) -> Log:
    steps = [Step(k, loss, dt_ms=1, tok_per_s=1) for k, loss in enumerate(losses, 1)]
    return Log(steps=steps)


def falling(low, steps=100):
    """Losses of three rounds that fall by 0.01 each step to `low`.

    Text and seed move all runs of a round alike, by more than anything else.
    """
    text = np.array([[0.0], [0.3], [-0.3]])
    return text + low + 0.01 * np.arange(steps - 1, -1, -1)


def climb_in(folder, losses, ms=(10, 10), **options):
    """Write a climb of scripts (by stem) with these losses and times of a step. Its rows."""
    times = dict(zip(losses, ms, strict=True))
    climb_of(folder, times, losses=losses, **options)
    return read_climb(folder)


def test_steps_to_a_loss_by_hand():
    """A step down at step 51: the mean over ten steps is 9 at step 50, 8 at 51 … and -1 at 60."""
    log = as_log([9.0] * 50 + [-1.0] * 50)
    assert steps_to(9.001, log) == 10  # of the first mean, which ends with step 10
    assert steps_to(8.001, log) == 51
    assert steps_to(4.001, log) == 55
    assert steps_to(-0.999, log) == 60
    assert steps_to(-1.001, log) == np.inf
    easy_for_a_while = as_log([9.0] * 30 + [-1.0] * 10 + [9.0] * 20 + [-1.0] * 40)
    assert steps_to(-0.999, easy_for_a_while) == 70  # not 40


# ------------------------------------------------------------------ a climb


def test_a_climb_of_100_steps_has_the_three_numbers(tmp_path):
    """01 ends as low as the baseline, in steps of half the time; 02 is down to that 40 steps sooner
    at the same speed and ends 0.4 lower; 03 ends above both."""
    losses = {
        "baseline": falling(6.0),
        TYING: falling(6.0),
        "02_tf32": falling(5.6) + SPREAD_BY_ROUND,
        "03_bf16_autocast": falling(6.1) - SPREAD_BY_ROUND,
    }
    _, (baseline, tied, lower, higher) = climb_in(tmp_path, losses, ms=[10, 5, 5, 5])
    assert baseline.loss == tied.loss == pytest.approx(6.045)
    assert baseline.loss_change is None and baseline.time_to_loss is None
    assert tied.loss_change.value == 0 and not tied.loss_change.significant
    assert tied.time_to_loss.value == pytest.approx(0.5)
    assert lower.loss_change.value == pytest.approx(-0.4)
    assert lower.loss_change.significant and lower.loss_change.high < 0
    assert lower.time_to_loss.value == pytest.approx(0.5 * 60 / 100, rel=0.01)
    assert higher.time_to_loss is None


def test_one_round_above_is_enough_for_not_reached(tmp_path):
    """The mean of the two others would say that 01 is twice as fast to that loss."""
    above = falling(5.0)
    above[1] += 1.01
    results = climb_in(tmp_path, {"baseline": falling(6.0), TYING: above})
    assert results.rows[1].time_to_loss is None
    said = "The loss that 00 baseline ends at is not reached by the others.\n"
    assert full_table(results).endswith(said)


def test_a_row_is_timed_as_the_first_one_is(tmp_path):
    """The running mean of both is at its end after 60 steps: a copy does not take half the time."""
    flat = np.concatenate([falling(6.0, steps=50), np.full((3, 50), 6.0)], axis=1)
    _, rows = climb_in(tmp_path, {"baseline": flat, TYING: flat})
    assert rows[1].time_to_loss.value == pytest.approx(1)
