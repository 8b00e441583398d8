"""What a climb of 100 steps or more says of its losses: how much lower, and how soon as low."""

import re

import numpy as np
import pytest
from climbs import climb_of

from ladder.log import Log
from ladder.measure.losses import end_loss, steps_to
from ladder.measure.rows import read_climb
from ladder.show import tables
from ladder.show.gather import gather
from ladder.show.page import page

SPREAD_BY_ROUND = np.array([[0.0], [0.001], [-0.001]])  # differences are never all the same
TYING = "01_weight_tying"


def as_log(losses) -> Log:
    return Log(steps=[{"loss": loss} for loss in losses])


def falling(low, steps=100):
    """Losses of three rounds that fall by 0.01 each step to `low`."""
    return np.tile(low + 0.01 * np.arange(steps - 1, -1, -1), (3, 1))


def climb_in(folder, losses, ms=(10, 10), **options):
    """Write a climb of scripts (by stem) with these losses and times of a step. Its rows."""
    times = dict(zip(losses, ms, strict=True))
    climb_of(folder, times, losses=losses, **options)
    return read_climb(folder)


# ------------------------------------------------------------------ one run


def test_the_end_is_the_last_tenth_of_the_steps():
    assert end_loss(as_log([9.0] * 180 + [5.0] * 10 + [7.0] * 10)) == pytest.approx(6)


def test_steps_to_a_loss_by_hand():
    """A step down at step 51: the mean over ten steps is 9 at step 50 and 8 at 51."""
    log = as_log([9.0] * 50 + [-1.0] * 50)
    assert steps_to(9.001, log) == 10  # of the first mean, which ends with step 10
    assert steps_to(8.001, log) == 51
    assert steps_to(-1.001, log) == np.inf


# ------------------------------------------------------------------ a climb


@pytest.fixture
def three(tmp_path):
    """01 ends as low as the baseline, in steps of half the time; 02 is down to that 40 steps sooner
    at the same speed and ends 0.4 lower; 03 ends above both."""
    losses = {
        "baseline": falling(6.0),
        TYING: falling(6.0),
        "02_tf32": falling(5.6) + SPREAD_BY_ROUND,
        "03_bf16_autocast": falling(6.1) - SPREAD_BY_ROUND,
    }
    climb_in(tmp_path / "climb", losses, ms=[10, 5, 5, 5])
    return tmp_path / "climb"


def test_a_climb_of_100_steps_has_the_three_numbers(three):
    """Student's t for three rounds is 4.303, and 0.4 is 0.001 more or less: 4.303 * 0.001 / √3."""
    table = tables.markdown(*read_climb(three))
    header, _, *lines = [line.split(" | ") for line in table.splitlines() if line[:1] == "|"]
    assert header[1:4] == ["loss", "loss vs. previous, nats", "time to the loss of 00 baseline"]
    assert lines[0][1:4] == ["6.0450", "–", "–"]
    assert lines[1][1:4] == ["6.0450", "+0.000 (+0.000 … +0.000)", "**0.50× (0.50 … 0.50)**"]
    assert lines[2][2] == "**−0.400 (−0.402 … −0.398)**" and lines[2][3].startswith("**0.30× (")
    assert lines[3][3] == "not reached"


def test_one_round_above_is_enough_for_not_reached(tmp_path):
    """The mean of the two others would say that 01 is twice as fast to that loss."""
    above = falling(5.0)
    above[1] += 1.01
    _, rows = climb_in(tmp_path, {"baseline": falling(6.0), TYING: above})
    assert rows[1].time_to_loss is None


def test_without_a_first_loss_none_can_be_reached(tmp_path):
    losses = {"baseline": (), TYING: falling(6.0), "02_tf32": falling(6.0)}
    _, rows = climb_in(tmp_path, losses, ms=[None, 10, 10])
    line = tables.cells(rows[2])
    assert line["loss_change"].text == "+0.000 (+0.000 … +0.000)"
    assert line["time_to_loss"].text == "–"


def test_a_row_is_timed_as_the_first_one_is(tmp_path):
    """The running mean of both is at its end after 60 steps: a copy does not take half the time."""
    flat = np.concatenate([falling(6.0, steps=50), np.full((3, 50), 6.0)], axis=1)
    _, rows = climb_in(tmp_path, {"baseline": flat, TYING: flat})
    assert rows[1].time_to_loss.value == pytest.approx(1)


@pytest.mark.parametrize(("kind", "steps"), [("climb", 99), ("peers", 100)])
def test_below_100_steps_and_of_other_libraries_there_are_none(kind, steps, tmp_path):
    losses = {"baseline": falling(6.0, steps), TYING: falling(5.0, steps)}
    climb, rows = climb_in(tmp_path, losses, kind=kind)
    assert rows[1].loss is rows[1].loss_change is rows[1].time_to_loss is None
    assert "loss" not in tables.columns(climb, rows)


@pytest.mark.parametrize(("epoch", "read_twice"), [("99.9", True), ("100", False)])
def test_a_note_says_that_text_was_read_twice(tmp_path, epoch, read_twice):
    losses = {"baseline": falling(6.0), TYING: falling(6.0)}
    climb, rows = climb_in(tmp_path, losses, run={"epoch_batches": epoch})
    notes = " ".join(tables.footnotes(climb, rows))
    assert (f"The text ends after {epoch} steps" in notes) == read_twice


def test_the_page_has_a_band_for_each_curve_and_a_bar_for_each_time(three):
    html = page([gather(three) | {"ablation": None}], made="")
    assert len(re.findall("<polygon data-curve", html)) == 3 * 4  # axes, rungs
    bars = html.split('class="ladder times-to"')[1].split("<h3>")[0]
    widths = re.findall(r'class="bar" style="width:([\d.]+)%', bars)
    assert [float(width) for width in widths] == pytest.approx([50, 25, 15], abs=0.2)  # of 2×
    assert "not reached" in bars
