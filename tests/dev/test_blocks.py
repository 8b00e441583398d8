"""dev/blocks.py: the generated parts of the pages."""

import numpy as np
from climbs import climb_of

from dev import blocks
from ladder.measure.rows import read_climb

STEPS = 200  # so that the running mean is over 20
NEVER = STEPS + 20


def falling(at: int, loss: float) -> np.ndarray:
    """Losses of 8, then of `loss`, so that the running mean comes down to it at step `at`."""
    return np.where(np.arange(1, STEPS + 1) > at - 20, loss, 8.0)


def cells(table: str, rung: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| [{rung}")]
    return [cell.strip() for cell in line.replace("\N{NO-BREAK SPACE}", " ").split("|")[1:-1]]


def test_steps_to_the_same_loss_are_a_mean_of_ratios_with_its_interval(tmp_path):
    """10 is at its end in step 200, 27 after 0.4, 0.5 and 0.625 of the steps: by hand 0.5, times or
    divided by exp(4.303 ln 1.25 / sqrt 3). 24 is there in two rounds of three, of which a mean
    would flatter it."""
    losses = {
        "10_fused_adamw": [falling(STEPS, 4.0)] * 3,
        "24_rope": [falling(at, 3.9) for at in (100, 100, NEVER)],
        "27_muon": [falling(at, 3.9) for at in (80, 100, 125)],
    }
    climb = climb_of(tmp_path, dict.fromkeys(losses, 10), losses=losses)
    table = blocks.staircase(("logs/x", *read_climb(climb)))
    assert cells(table, "10")[2] == "–"
    assert cells(table, "24")[2] == "not reached"
    assert cells(table, "27")[2] == "**0.50× (0.29 … 0.87)**"
