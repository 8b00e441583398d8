"""Where the marks of a page stand: axes, bars and curves, as CSS and SVG write them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ladder.measure.stats import Estimate
from ladder.show.colors import CURVES, DASHES


@dataclass
class Tick:
    """A round value of an axis: where it stands, as CSS writes it, and its text."""

    place: str
    text: str
    edge: str  # `start` or `end` where the text would reach beyond the axis


@dataclass
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float

    def at(self, value):
        """Where a value, or each of an array, stands on the axis: from 0 to 1."""
        return (value - self.low) / (self.high - self.low or 1)

    def round_values(self, about: int) -> list[float]:
        """At most `about` + 1 round values on the axis."""
        span = self.high - self.low or 1
        step = 10 ** math.floor(math.log10(span / about))
        for factor in (1, 2, 5, 10):
            if span / (factor * step) <= about:
                step *= factor
                break
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        return [k * step for k in range(first, last + 1)]

    def ticks(self, about: int, upright=False) -> list[Tick]:
        """The ticks at `round_values`; CSS counts those of an upright axis from its top."""
        marks = []
        for value in self.round_values(about):
            at = self.at(value)
            if upright:
                at = 1 - at
            edge = "end" if at > 0.98 else "start" if at < 0.03 else ""
            marks.append(Tick(share(at), f"{value:,g}".replace("-", "−"), edge))
        return marks


def share(part: float) -> str:
    """A part of 1 as a width or a place in CSS."""
    return f"{100 * part:.2f}%"


def between(low: float, high: float) -> str:
    """A line from one part of an axis to another, in CSS."""
    return f"left:{share(low)};width:{share(high - low)}"


def grid(ticks: list[Tick]) -> str:
    """A line at each tick, that of zero darker: a background in CSS."""
    lines = []
    for tick in ticks:
        color = "soft" if tick.text == "0" else "rule"
        lines.append(f"linear-gradient(var(--{color}) 0 0) {tick.place}/1px 100% no-repeat")
    return ",".join(lines)


def color_of(k: int) -> str:
    """The colour and dashes of the k-th curve in CSS: after a few they are grey and thin."""
    if k >= len(CURVES):
        return "--curve:var(--grey);--wide:1"
    return f"--curve:var(--curve{k + 1});stroke-dasharray:{DASHES[k]}"


@dataclass
class Mark:
    """An estimate on an axis: a dot, and its interval if it has one, as CSS writes them."""

    css_class: str  # `up` if it is significantly better, `down` if worse; `alone`: left out
    dot: str
    interval: str | None


def state(found: Estimate | None, is_loss=False) -> str:
    """`up` if a gain, or a difference in loss, is significantly better, `down` if worse."""
    if not found or not found.significant:
        return ""
    better = found.value < 0 if is_loss else found.value > 1
    return "up" if better else "down"


def draw_mark(
    found: Estimate | None, place: Callable[[float], float], css_class: str
) -> Mark | None:
    """An estimate, if there is one, whose values stand at `place`."""
    if not found:
        return None
    interval = None
    if found.low is not None:
        interval = between(place(found.low), place(found.high))
    return Mark(css_class, f"left:{share(place(found.value))}", interval)


def svg(x: np.ndarray, y: np.ndarray) -> str:
    """A curve where y is finite, as SVG writes it, from where its points stand on both axes."""
    finite = np.isfinite(y)
    points = zip(x[finite], y[finite], strict=True)
    return " ".join(f"{999 * along:.1f},{999 * (1 - up):.1f}" for along, up in points)


def part_times(rung) -> list[tuple[str, str]]:
    """Each part of a step with its milliseconds: before and after, if they differ."""
    before = rung.base.roofline if rung.base else {}
    times = []
    for name, ms in rung.roofline.items():
        was = before.get(name, ms)
        change = "" if f"{was:.1f}" == f"{ms:.1f}" else f"{was:.1f} → "
        times.append((name, f"{change}{ms:.1f} ms"))
    return times
