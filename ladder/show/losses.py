"""The losses of a climb as the page shows them: differences, in words, as dots and as curves."""

from dataclasses import dataclass

import numpy as np

from ladder.measure.losses import smooth_losses
from ladder.measure.rows import compared, loss_change
from ladder.measure.stats import Estimate, mean_of
from ladder.show.colors import CURVES
from ladder.show.draw import Mark, Scale, Tick, color_of, draw_mark, svg
from ladder.show.gather import ClimbSection, Rung
from ladder.show.tables import with_interval

POINTS = 500  # of a curve, at most


@dataclass
class MarkedRow:
    """An estimate of a rung as a dot on an axis, and in words."""

    title: str
    loss: str
    mark: Mark | None
    said: str


@dataclass
class Curve:
    """The difference of a rung to the first at each step, and a band that the rounds reach over."""

    title: str
    style: str
    line: str
    band: str


@dataclass
class Curves:
    """The differences of all rungs. A few have a colour: those that `draw_curves` names."""

    up: list[Tick]
    across: list[Tick]
    zero: str  # a line there, as SVG writes it
    colored: list[Curve]
    grey: list[Curve]


@dataclass
class Losses:
    """What the rungs of a climb do to the loss."""

    headline: str
    certainty: str
    heading: str
    ticks: list[Tick]
    changes: list[MarkedRow]
    curves: Curves


def draw_losses(section: ClimbSection) -> Losses | None:
    """The losses of a climb; None if its runs have too few steps, or are not compared by loss."""
    rungs = [rung for rung in section.rungs if rung.row.loss]
    if len(rungs) < 2:
        return None
    heading = section.climb.comparison.loss_heading
    values = [0]
    for rung in rungs:
        found = rung.row.loss_change
        if found:
            values += [found.value, found.low or 0, found.high or 0]
    nats = Scale(min(values), max(values))
    changes = []
    for rung in rungs:
        row = rung.row
        mark = draw_mark(row.loss_change, nats.at, state(row.loss_change))
        name = rung.title + rung.over
        changes.append(MarkedRow(name, f"{row.loss:.4f}", mark, rung.figures[heading]))
    headline, certainty = verdict(section, rungs)
    return Losses(headline, certainty, heading, nats.ticks(8), changes, draw_curves(rungs))


def state(found: Estimate | None) -> str:
    """`up` if a difference in loss is significant and lower, `down` if it is higher."""
    if not found or not found.significant:
        return ""
    return "up" if found.value < 0 else "down"


def verdict(section: ClimbSection, rungs: list[Rung]) -> tuple[str, str]:
    """What became of the loss, in words, and how sure that is."""
    first, top = rungs[0], rungs[-1]
    comparison = section.climb.comparison
    changed = [rung for rung in rungs if rung.row.loss_change]
    if comparison.against == "top" and changed:  # the first row is the top
        first, top = max(changed, key=lambda rung: abs(rung.row.loss_change.value)), first
    found = compared(first.row, top.row, loss_change, mean_of)
    if not found:
        said = f"{top.title} and {first.title} do not compare by loss"
        return said, "They have no round in common."
    side = "above" if found.value > 0 else "below"
    said = f"{top.title} ends {abs(found.value):.3f} nats {side} {first.title}"
    if found.low is not None and found.low <= 0 <= found.high:
        said = f"No significant difference in loss: {top.title} and {first.title}"
    clear = [rung.title for rung in changed if rung.row.loss_change.significant]
    difference = with_interval(found, "{:+.3f}".format, "")
    return said, (
        f"Mean of the last tenth of {len(top.row.log.steps)} steps: {top.row.loss:.4f} and "
        f"{first.row.loss:.4f}, a difference of {difference}. Of {len(changed)} changes from row "
        f"to row, significant after Holm's correction: {', '.join(clear) or 'none'}."
    )


def draw_curves(rungs: list[Rung]) -> Curves:
    """The loss of each rung, less that of the first in the same round, at each step.

    A few have a colour: those that change the loss most, of the significant ones. The scale is that
    of the later half of the steps.
    """
    first, *others = rungs
    clear = [rung for rung in others if state(rung.row.loss_change)]
    clear.sort(key=lambda rung: -abs(rung.row.loss_change.value))
    differences = {}
    for rung in others:
        rounds = []
        for k in first.row.logs.keys() & rung.row.logs.keys():
            rounds.append(smooth_losses(rung.row.logs[k]) - smooth_losses(first.row.logs[k]))
        if rounds:
            differences[rung.stem] = np.array(rounds)  # (rounds, points)
    steps = np.array([step["step"] for step in first.row.log.steps])
    every = 1 + len(steps) // POINTS
    shape = len(smooth_losses(first.row.log))
    steps = steps[-shape:][::every]  # a running mean begins later
    later = np.concatenate([rounds.mean(axis=0)[shape // 2 :] for rounds in differences.values()])
    margin = 0.1 * max(1e-3, np.ptp(later))
    up = Scale(min(0, later.min()) - margin, max(0, later.max()) + margin)
    across = Scale(steps.min(), steps.max())
    colored = []
    grey = []
    for rung in others:
        if rung.stem not in differences:
            continue
        rounds = up.at(differences[rung.stem][:, ::every])
        x = across.at(steps)
        low = rounds.min(axis=0)
        high = rounds.max(axis=0)
        curve = Curve(rung.title, "", svg(x, rounds.mean(axis=0)), "")
        if rung in clear[: len(CURVES)]:
            curve.style = color_of(len(colored))
            curve.band = f"{svg(x, low)} {svg(x[::-1], high[::-1])}"
            colored.append(curve)
        else:
            grey.append(curve)
    zero = f"M0,{999 * (1 - up.at(0)):.1f}h999"
    return Curves(up.ticks(5, upright=True), across.ticks(6), zero, colored, grey)
