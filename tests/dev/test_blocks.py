"""blocks.py: the generated parts of README.md."""

import blocks
import numpy as np
import pytest
from climbs import PUBLISHED, climb_of

from ladder.measure.rows import read_climb


def test_what_was_measured_says_what_the_logs_say():
    """In any order of the climb: a gain is over the rung before."""
    climb, rows = read_climb(PUBLISHED)
    rows = [rows[i] for i in (0, 3, 1, 2, *range(4, len(rows)))]
    text = blocks.measured(("logs/x", climb, rows))
    found = "Rung 10 is 3.2 times as fast as the baseline; rung 12, for [CPUs](cpu), 4.2"
    assert found in text
    assert blocks.NO_GPU in text


# ------------------------------------------------------------------ beyond/


STEPS = 200  # so that the running mean is over 20
NEVER = STEPS + 20


def falling(at: int, loss: float) -> np.ndarray:
    """Losses of 8, then of `loss`, so that the running mean comes down to it at step `at`."""
    return np.where(np.arange(1, STEPS + 1) > at - 20, loss, 8.0)


@pytest.fixture
def climb(tmp_path):
    """10 is at its end in step 200. 27 is there after 0.4, 0.5 and 0.625 of the steps, 24 in two
    rounds of three."""
    losses = {
        "10_fused_adamw": [falling(STEPS, 4.0)] * 3,
        "24_rope": [falling(at, 3.9) for at in (100, 100, NEVER)],
        "27_muon": [falling(at, 3.9) for at in (80, 100, 125)],
    }
    times = dict.fromkeys(losses, 10)
    return ("logs/x", *read_climb(climb_of(tmp_path, times, losses=losses)))


def cells(table: str, rung: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| [{rung}")]
    return [cell.strip() for cell in line.replace("\N{NO-BREAK SPACE}", " ").split("|")[1:-1]]


def test_steps_to_the_same_loss_are_a_mean_of_ratios_with_its_interval(climb):
    """By hand: 0.5, times or divided by exp(4.303 ln 1.25 / sqrt 3)."""
    table = blocks.staircase(climb, climb)
    assert cells(table, "27")[2] == cells(table, "27")[4] == "**0.50× (0.29 … 0.87)**"
    assert cells(table, "10")[1:] == ["–", "–"] * 2
    assert "0.50 (0.29 … 0.87) with gpt2" in blocks.beyond_lines(climb)


def test_what_a_round_does_not_reach_is_not_reached(climb):
    """A mean of the other rounds would flatter it."""
    assert cells(blocks.staircase(climb), "24")[2] == "not reached"
