"""The chart engine: bars, estimates with their intervals, and curves, as SVG.

A picture is drawn at its true size: wide for a page, narrow for a screen below 600 pixels, so that
no words shrink. Its colours are classes: `style` has them on a white ground and on a dark one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from textwrap import wrap

from ladder.measure.stats import Estimate

WIDE = 832  # the column of a page on GitHub
NARROW = 358  # the same on a phone
# On a white ground, on a dark one. The grounds are GitHub's. Words have a contrast of at least
# 4.5:1, and parts differ in blue against yellow or in lightness, for who does not tell red from
# green. A colour means one thing: a part of a step, what others reported, what was measured here.
COLORS = {
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "added": ("#dafbe1", "#12301c"),  # the ground of a diff's `+` line
    "added-ink": ("#0a4a1f", "#aff5b4"),
    "reported": ("#c8385a", "#ff7d98"),
    "measured": ("#0b7a6b", "#3fb8a4"),
    "matmuls": ("#174a78", "#4d8fc4"),
    "attention": ("#b45309", "#e08b1d"),
    "traffic": ("#5c7893", "#a9c6de"),
    "optimizer": ("#4a4a4a", "#d0d0d0"),
    "second": ("#c2500a", "#f0935e"),
    "third": ("#7a3b8f", "#d3a0e6"),
    "fourth": ("#0a58a8", "#86b8f2"),
}
CURVES = ("measured", "second", "third", "fourth", "soft")  # that are compared; the rest are soft
SANS = '-apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
Point = tuple[float, float]  # x and y, in pixels
LETTER = 6.8  # pixels of a letter, at most, at the usual size of words


@dataclass
class Axis:
    """From `low` to `high`, and where that is in pixels. One of gains is logarithmic."""

    low: float
    high: float
    name: str = ""
    gains: bool = False
    origin: float | None = None  # has a darker line
    start: float = 0.0  # the picture sets both
    end: float = 0.0

    def at(self, value: float) -> float:
        """Where a value stands, in pixels."""
        low, high = self.low, self.high
        if self.gains:
            low, high, value = math.log(low), math.log(high), math.log(value)
        part = (value - low) / (high - low or 1)
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int) -> dict[float, str]:
        """At most `about` + 1 round values, and their words."""
        span = self.high - self.low or 1
        step = 10 ** math.floor(math.log10(span / about))
        for factor in (1, 2, 5, 10):
            if span <= about * factor * step:
                step *= factor
                break
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        ticks = {}
        for k in range(first, last + 1):
            value = k * step
            words = f"{value * 100 - 100:.0f} %" if self.gains else f"{value:,g}"
            ticks[value] = words.replace("-", "−")
        return ticks

    def with_room(self) -> dict[float, str]:
        """The ticks whose words do not touch those before."""
        ticks = {}
        room = 0  # begins here
        for value, words in self.ticks(5).items():
            if self.at(value) > room:
                ticks[value] = words
                room = self.at(value) + 8 * len(words)
        return ticks


@dataclass
class Bar:
    """A row of a picture: a name, a bar, dots, some with intervals, and words at the right edge."""

    name: str
    pieces: list[tuple] = field(default_factory=list)  # each: part of 1, colour, words
    end: str = ""  # words behind the bar
    limit: float | None = None  # a mark on the bar: a part of 1
    marks: list[Estimate | None] = field(default_factory=list)
    dots: list[list[float]] = field(default_factory=list)  # a line of them for each colour
    right: str = ""


class Picture:
    """A drawing `width` pixels wide. y grows downwards, and `y` is how far it has come."""

    def __init__(self, width: int, title: str):
        self.width = width
        self.wide = width == WIDE
        self.title = title
        self.shapes = []
        self.y = 0

    def rect(self, x: float, y: float, width: float, height: float, color: str):
        """A filled rectangle, its upper left corner at (x, y)."""
        self.shapes.append(
            f'<rect class="{color}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"/>'
        )

    def line(self, points: list[Point], color: str, width: float = 1.0, dashes: str = "none"):
        """A line through `points`, each (x, y)."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.shapes.append(
            f'<polyline class="{color}-line" fill="none" stroke-width="{width}" '
            f'stroke-dasharray="{dashes}" points="{path}"/>'
        )

    def dot(self, x: float, y: float, color: str, hollow: bool = False):
        """A dot; a hollow one shows the ground."""
        fill = "ground" if hollow else color
        self.shapes.append(
            f'<circle class="{fill} {color}-line" cx="{x:.1f}" cy="{y:.1f}" r="4" '
            'stroke-width="2"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        color: str = "ink",
        size: float = 13.0,
        anchor: str = "start",
        weight: int = 400,
    ):
        """Words on the line y, which start, end or have their middle at x."""
        self.shapes.append(
            f'<text class="{color}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'font-size="{size:.1f}" font-weight="{weight}">{escape(words)}</text>'
        )

    def say(self, words: str):
        """Words over the whole width, in as many lines as they need."""
        for line in wrap(words, int(self.width / LETTER)):
            self.y += 18
            self.text(0, self.y, line, "soft")
        self.y += 6

    def legend(self, labels: dict[str, str]):
        """What each colour is, below each other."""
        for color, label in labels.items():
            self.y += 18
            self.rect(0, self.y - 11, 12, 12, color)
            self.text(17, self.y, label)
        self.y += 8

    def bars(
        self,
        bars: list[Bar],
        part: float = 0.8,
        axis_name: str = "",
        gains: bool = True,
        colors: tuple[str, ...] = ("measured",),
    ):
        """Rows below each other: names at the left, or above the bars where it is narrow.

        A bar of 1 takes a `part` of the room at the right of the names, and the axis of the marks,
        if there are any, what words do not need. Each row's marks are in these colours.
        """
        values = []
        for bar in bars:
            for mark in filter(None, bar.marks):
                values += [mark.low, mark.high]
            for dots in bar.dots:
                values += dots
        axis = axis_of(values, axis_name, gains) if values else None
        longest = max(len(bar.name) for bar in bars)
        left = max(160, 7 * longest + 8) if self.wide else 0
        full = part * (self.width - left)
        if axis:
            room = 24 if bars[0].dots else 12
            axis.start = left + full + (95 if bars[0].end else room)
            axis.end = self.width - (180 if self.wide and bars[-1].right else room + 2)
        ticks = axis.with_room() if axis else {}
        height = max(28, 12 + 12 * len(bars[0].dots))
        for bar in bars:
            top = self.y if left else self.y + 22
            middle = top + height / 2
            heading = middle + 5 if left else self.y + 19
            self.text(0, heading, bar.name, size=14)
            self.text(self.width, heading, bar.right, anchor="end")
            self.y = top + height
            for value in ticks:
                x = axis.at(value)
                line = "soft" if value == axis.origin else "grid"
                self.line([(x, top), (x, self.y)], line)
            if axis and not left:  # else a dot beyond the last of them would float
                self.line([(axis.start, middle), (axis.end, middle)], "grid")
            if bar.dots and left:  # which of the lines are this row's
                self.line([(0, top), (self.width, top)], "grid")
            self.bar(bar, left, middle, full)
            for k, mark in enumerate(bar.marks):
                if mark:
                    y = middle + 7 * (k - (len(bar.marks) - 1) / 2)
                    self.mark(mark, axis, y, colors[k])
            for k, dots in enumerate(bar.dots):
                self.dots(dots, axis, middle + 12 * (k - (len(bar.dots) - 1) / 2), colors[k])
        for value, words in ticks.items():
            self.text(axis.at(value), self.y + 15, words, "soft", 12, "middle")
        if axis:
            self.text(axis.end, self.y + 32, axis.name, "soft", anchor="end")
        self.y += 38 if axis else 6

    def bar(self, bar: Bar, x: float, middle: float, full: float):
        """The pieces of a bar, of which 1 is `full` pixels, and what stands behind them."""
        if bar.limit:
            self.rect(x + bar.limit * full - 1, middle - 12, 3, 24, "ink")
        for length, color, words in bar.pieces:
            length *= full
            self.rect(x, middle - 9, max(1, length - 1), 18, color)
            if length > 8 * len(words) + 4:
                self.text(x + length / 2, middle + 5, words, "ground", anchor="middle")
            x += length
        self.text(x + 6, middle + 5, bar.end, weight=600)

    def mark(self, found: Estimate, axis: Axis, y: float, color: str):
        """An estimate: its interval, and a dot in it that is hollow if it is not significant."""
        self.line([(axis.at(found.low), y), (axis.at(found.high), y)], color, 2)
        self.dot(axis.at(found.value), y, color, not found.significant)

    def dots(self, values: list[float], axis: Axis, y: float, color: str):
        """A dot for each value, and an upright tick at their median."""
        for value in values:
            self.dot(axis.at(value), y, color)
        if values:
            self.rect(axis.at(median(values)) - 1.5, y - 6, 3, 12, "ink")

    def svg(self, inline: bool = False) -> str:
        """The file; or an element for a page that has `style` itself."""
        size = f'width="{self.width}" height="{self.y + 4:.0f}"'
        rules = "" if inline else f"<style>\n{style()}</style>\n"
        shapes = "\n".join(self.shapes)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" \
viewBox="0 0 {self.width} {self.y + 4:.0f}">
<title>{escape(self.title)}</title>
{rules}<rect class="ground" {size}/>
{shapes}
</svg>
"""


class Chart:
    """Curves over two axes, on a picture below what is drawn there."""

    def __init__(
        self, picture: Picture, across: Axis, up: Axis, height: int = 240, margin: int = 30
    ):
        self.picture = picture
        self.across = across
        self.up = up
        top = picture.y + 30
        bottom = top + height
        width = picture.width - margin - 58
        across.start, across.end = 58, 58 + width
        up.start, up.end = bottom, top
        place = f'x="58" y="{top}" width="{width}" height="{height}"'
        self.inside = f'<svg {place} viewBox="58 {top} {width} {height}">'
        for value, words in up.ticks(height // 45).items():
            y = up.at(value)
            picture.line([(across.start, y), (across.end, y)], "grid")
            picture.text(across.start - 7, y + 4, words, "soft", 12, "end")
        for value, words in across.ticks(8 if picture.wide else 4).items():
            picture.text(across.at(value), bottom + 17, words, "soft", 12, "middle")
        picture.text(0, top - 12, up.name, "soft")
        picture.text(across.end, bottom + 34, across.name, "soft", anchor="end")
        picture.y = bottom + 38

    def line(self, xs: Sequence, ys: Sequence, color: str, thick: float, dashes: str = "none"):
        """A curve where it is finite; an inner <svg> cuts off what is off the scale."""
        points = []
        for x, y in zip(xs, ys, strict=True):
            if math.isfinite(y):
                points.append((self.across.at(x), self.up.at(y)))
        self.picture.shapes.append(self.inside)
        self.picture.line(points, color, thick, dashes)
        self.picture.shapes.append("</svg>")

    def upright(self, x: float, words: str):
        """A line from the bottom to the top, with words at its right."""
        x = self.across.at(x)
        self.picture.line([(x, self.up.start), (x, self.up.end)], "soft", 1, "4 3")
        self.picture.text(x + 5, self.up.end + 12, words, "soft")


def axis_of(values: list[float], name: str, gains: bool) -> Axis:
    """An axis of these values, and of no gain, or no difference."""
    origin = 1 if gains else 0
    values = [origin, *values]
    return Axis(min(values), max(values), name, gains, origin)


def style() -> str:
    """The rules of CSS for the colours, so that one rule turns them on a dark screen. Paper is
    white."""
    light = ""
    dark = ""
    for name, (on_white, on_dark) in COLORS.items():
        light += f".{name}{{fill:{on_white}}}.{name}-line{{stroke:{on_white}}}"
        dark += f".{name}{{fill:{on_dark}}}.{name}-line{{stroke:{on_dark}}}"
    words = f"text{{font-family:{SANS};white-space:pre}}.mono{{font-family:{MONO}}}"
    return f"{words}\n{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"
