"""The second staircase: in how many steps its rungs come down to a loss."""

from typing import NamedTuple

import numpy as np

from ladder.measure.losses import end_loss, smooth_losses, stays_below, steps_to
from ladder.measure.rows import Row, compared, ln_steps_to_loss
from ladder.measure.scripts import branch
from ladder.measure.stats import Estimate, gain_of, holm

START = "10_fused_adamw"


def shares(rows: list[Row]) -> dict[str, Estimate | None]:
    """By stem, the steps of each row to where rung 10 ends, as a share of rung 10's own; None if a
    round never came down to it.
    """
    ran = by_stem(rows)
    found = {}
    for stem, row in ran.items():
        if stem != START:
            found[stem] = compared(ran[START], row, ln_steps_to_loss, gain_of)
    holm(found.values())
    return found


def by_stem(rows: list[Row]) -> dict[str, Row]:
    """The rows that ran, of the staircase as it is: what was tried besides is in its RUNLOG."""
    kept = {START, *(path.stem for path in branch("beyond"))}
    return {row.stem: row for row in rows if row.logs and row.stem in kept}


def own_steps(row: Row) -> float:
    """The steps in which a row comes down to where it ends, the mean of its rounds."""
    return float(np.mean([steps_to(end_loss(log), log) for log in row.logs.values()]))


class Curve(NamedTuple):
    """The losses of a row over its steps, each array (points,): over the rounds."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def step_at(self, loss: float) -> float:
        """The step from which on the mean stays at or below `loss`; inf if it ends above."""
        return self.steps[0] + stays_below(self.mean, loss)

    def part_below(self, loss: float) -> "Curve":
        """Each tenth step, where the lowest round is not above `loss`."""
        shown = np.flatnonzero(self.low <= loss)[::-10][::-1]  # with the last step
        return Curve(*(values[shown] for values in self))


def curves(rows: list[Row]) -> dict[str, Curve]:
    """The running mean of each row that ran, over the rounds that all of them have."""
    ran = by_stem(rows)
    rounds = set.intersection(*(set(row.logs) for row in ran.values()))
    found = {}
    for stem, row in ran.items():
        losses = np.array([smooth_losses(row.logs[k]) for k in sorted(rounds)])
        total = len(row.log.steps)
        steps = np.arange(total - losses.shape[1] + 1, total + 1)
        found[stem] = Curve(steps, losses.mean(0), losses.min(0), losses.max(0))
    return found
