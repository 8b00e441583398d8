"""The losses of a climb as the page shows them: in words, differences as dots and as curves."""

from dataclasses import dataclass

import numpy as np

from ladder.measure.losses import smooth_losses
from ladder.measure.rows import compared, loss_change
from ladder.measure.stats import mean_of
from ladder.show.draw import Scale, Tick, color_of, draw_mark, state, svg
from ladder.show.gather import ClimbSection, Rung
from ladder.show.tables import with_interval

POINTS = 500  # of a curve, at most


@dataclass
class Curve:
    """The difference of a rung to the first at each step, as SVG writes it."""

    title: str
    style: str
    line: str


@dataclass
class Curves:
    """The differences of all rungs, those first that change the loss significantly, or most."""

    up: list[Tick]
    across: list[Tick]
    zero: str  # a line there, as SVG writes it
    curves: list[Curve]


@dataclass
class Losses:
    """What the rungs of a climb do to the loss."""

    headline: str
    certainty: str
    ticks: list[Tick]
    changes: list[tuple]  # a rung, its difference as a dot on an axis, and in words
    drawn: Curves


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
        found = rung.row.loss_change
        mark = draw_mark(found, nats.at, state(found, is_loss=True))
        said = rung.figures[heading] if mark else ""
        changes.append((rung, mark, said))
    return Losses(*verdict(section, rungs), nats.ticks(8), changes, draw_curves(rungs))


def verdict(section: ClimbSection, rungs: list[Rung]) -> tuple[str, str]:
    """What became of the loss, in words, and how sure that is."""
    first = rungs[0]
    last = rungs[-1]
    changed = [rung for rung in rungs if rung.row.loss_change]
    if section.climb.comparison.against == "top" and changed:  # the first row is the top
        first = max(changed, key=lambda rung: abs(rung.row.loss_change.value))
        last = rungs[0]
    found = compared(first.row, last.row, loss_change, mean_of)
    if not found:
        said = f"{last.title} and {first.title} do not compare by loss"
        return said, "They have no round in common."
    side = "above" if found.value > 0 else "below"
    said = f"{last.title} ends {abs(found.value):.3f} nats {side} {first.title}"
    if found.low is not None and found.low <= 0 <= found.high:
        said = f"No significant difference in loss: {last.title} and {first.title}"
    clear = [rung.title for rung in changed if rung.row.loss_change.significant]
    difference = with_interval(found, "{:+.3f}".format, "")
    return said, (
        f"Mean of the last tenth of {len(last.row.log.steps)} steps: {last.row.loss:.4f} and "
        f"{first.row.loss:.4f}, a difference of {difference}. Of {len(changed)} changes from row "
        f"to row, significant after Holm's correction: {', '.join(clear) or 'none'}."
    )


def draw_curves(rungs: list[Rung]) -> Curves:
    """The loss of each rung, less that of the first in the same round, at each step.

    Means over the rounds. The scale is that of the later half of the steps.
    """
    first, *others = rungs
    differences = {}
    clear = set()
    for rung in others:
        rounds = []
        for k in first.row.logs.keys() & rung.row.logs.keys():
            rounds.append(smooth_losses(rung.row.logs[k]) - smooth_losses(first.row.logs[k]))
        if rounds:
            differences[rung.title] = np.mean(rounds, axis=0)  # (points,)
            if state(rung.row.loss_change, is_loss=True):
                clear.add(rung.title)
    steps = np.array([step["step"] for step in first.row.log.steps])
    points = len(smooth_losses(first.row.log))
    steps = steps[-points:]  # a running mean begins later
    later = np.concatenate([mean[points // 2 :] for mean in differences.values()])
    margin = 0.1 * max(1e-3, np.ptp(later))
    up = Scale(min(0, later.min()) - margin, max(0, later.max()) + margin)
    across = Scale(steps.min(), steps.max())
    every = 1 + len(steps) // POINTS
    curves = []
    titles = sorted(differences, key=lambda title: -abs(differences[title][-1]))
    titles.sort(key=lambda title: title not in clear)
    for title in titles:
        line = svg(across.at(steps[::every]), up.at(differences[title][::every]))
        curves.append(Curve(title, color_of(len(curves)), line))
    zero = f"M0,{999 * (1 - up.at(0)):.1f}h999"
    return Curves(up.ticks(5, upright=True), across.ticks(6), zero, curves)
