"""Where the marks of a page stand: axes, bars and curves, as CSS and SVG write them."""

import math
from dataclasses import dataclass

import numpy as np


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
            edge = "end" if at > 0.93 else "start" if at < 0.03 else ""
            marks.append(Tick(share(at), f"{value:,g}", edge))
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


def hue(k: int, n: int) -> int:
    """The hue of the k-th of n curves, from blue to red."""
    return round(265 - 245 * k / max(1, n - 1))


def svg(x: np.ndarray, y: np.ndarray) -> str:
    """A curve where y is finite, as SVG writes it, from where its points stand on both axes."""
    finite = np.isfinite(y)
    points = zip(x[finite], y[finite], strict=True)
    return " ".join(f"{999 * along:.1f},{999 * (1 - up):.1f}" for along, up in points)


@dataclass
class Part:
    """A part of a step in a bar of milliseconds."""

    name: str
    style: str


@dataclass
class StepBar:
    """The roofline of a step as a bar: `before` a change or `after` it."""

    when: str
    title: str
    parts: list[Part]
    total: str


def step_bars(rung, longest: float) -> list[StepBar]:
    """The bar of the script that this one goes on from, what it removes hatched, and its own.

    Bars stand on a scale that ends at `longest` milliseconds.
    """
    bars = []
    if rung.base and rung.base.roofline:
        parts = []
        for name, ms in rung.base.roofline.items():
            gone = max(0, 1 - rung.roofline[name] / ms) if ms else 0
            parts.append(Part(name, f"width:{share(ms / longest)};--gone:{share(gone)}"))
        bars.append(StepBar("before", rung.base.title, parts, rung.base.total))
    parts = [Part(name, f"width:{share(ms / longest)}") for name, ms in rung.roofline.items()]
    bars.append(StepBar("after", rung.title, parts, rung.total))
    return bars


def part_times(rung) -> list[tuple[str, str]]:
    """Each part of a step with its milliseconds: before and after, if they differ."""
    times = []
    for name, ms in rung.roofline.items():
        now = f"{ms:.1f}"
        was = f"{rung.base.roofline[name]:.1f}" if rung.base and rung.base.roofline else now
        times.append((name, f"{now} ms" if was == now else f"{was} → {now} ms"))
    return times
