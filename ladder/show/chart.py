"""The chart engine: bars, estimates with their intervals, and curves, as SVG.

A picture is drawn at its true size: wide for a page, narrow for a screen below 600 pixels, so that
no words shrink. Its colours are classes: `style` has them on a white ground and on a dark one.
"""

import math
from dataclasses import dataclass, field
from html import escape
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
    "faint": ("#a5d2ca", "#1d5a51"),  # single steps of what was measured
    "matmuls": ("#2e6fa0", "#4d8fc4"),
    "attention": ("#c8640a", "#e08b1d"),
    "traffic": ("#7295b3", "#a9c6de"),
    "optimizer": ("#4a4a4a", "#d0d0d0"),
    "on-light": ("#000000", "#0d1117"),  # words on attention and memory traffic
    "second": ("#c2500a", "#f0935e"),
    "third": ("#7a3b8f", "#d3a0e6"),
    "fourth": ("#0a58a8", "#86b8f2"),
}
PARTS = ("matmuls", "attention", "traffic", "optimizer")  # in the order of ladder.measure.work
CURVES = ("measured", "second", "third", "fourth")  # curves that are compared; the rest are soft
# What words on a piece of a bar are written in.
INKS = {"matmuls": "ground", "attention": "on-light", "traffic": "on-light", "optimizer": "ground"}
SANS = '-apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
LETTER = 6.8  # pixels of a letter, at most, at the usual size of words
MONO_LETTER = 0.602  # the same of most monospaced letters, as a part of their size


@dataclass
class Scale:
    """An axis from `low` to `high`; both are above 0 if it is logarithmic."""

    low: float
    high: float
    log: bool = False

    def at(self, value):
        """Where a value stands on the axis: from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / (math.log(self.high / self.low) or 1)
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

    def ticks(self, about: int) -> dict[float, str]:
        """The round values, and their words."""
        return {value: f"{value:,g}".replace("-", "−") for value in self.round_values(about)}


@dataclass
class Axis:
    """Where estimates stand: from `start` to `end`, parts of the room at the right of the names."""

    heading: str
    start: float
    end: float
    scale: Scale
    ticks: dict[float, str]
    origin: float = 1.0  # the tick with a darker line: no gain, or all of something
    left: float = 0.0  # pixels; the picture sets them
    right: float = 0.0

    def x(self, value: float) -> float:
        """Where a value stands, in pixels; what is off the scale, at its end."""
        part = min(max(self.scale.at(value), 0), 1)
        return self.left + part * (self.right - self.left)


@dataclass
class Bar:
    """A row of a picture: a name, then a bar, a dot on each axis, and words at the right edge."""

    name: str
    pieces: list[tuple] = field(default_factory=list)  # each: part of 1, colour, words
    end: str = ""  # words behind the bar
    limit: float | None = None  # a mark on the bar: a part of 1
    code: str = ""  # the line that a diff adds
    marks: list[Estimate | None] = field(default_factory=list)  # one for each axis
    right: str = ""
    link: str = ""  # where the name leads


class Picture:
    """A drawing `width` pixels wide. y grows downwards, and `y` is how far it has come."""

    def __init__(self, width: int, title: str):
        self.width = width
        self.wide = width == WIDE
        self.title = title
        self.shapes = []
        self.y = 0

    def rect(self, x, y, width, height, color):
        """A filled rectangle, its upper left corner at (x, y)."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.shapes.append(f'<rect class="{color}" {place}/>')

    def line(self, points, color, width=1.0, dashes="none"):
        """A line through `points`, each (x, y)."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = f'fill="none" stroke-width="{width}" stroke-dasharray="{dashes}"'
        self.shapes.append(f'<polyline class="{color}-line" {style} points="{path}"/>')

    def dot(self, x, y, color, hollow=False, radius=4.5):
        """A dot; a hollow one shows the ground."""
        fill = "ground" if hollow else color
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}" stroke-width="2"'
        self.shapes.append(f'<circle class="{fill} {color}-line" {place}/>')

    def text(self, x, y, words, color="ink", size=13.0, anchor="start", weight=400, link=""):
        """Words on the line y, which start, end or have their middle at x."""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        font = f'font-size="{size:.1f}" font-weight="{weight}"'
        element = f'<text class="{color}" {place} {font}>{escape(words)}</text>'
        self.shapes.append(f'<a href="{escape(link)}">{element}</a>' if link else element)

    def wrapped(self, x, y, words, width, color="soft") -> float:
        """Words in lines of a width; returns where they end."""
        for line in wrap(words, int(width / LETTER)):
            y += 18
            self.text(x, y, line, color)
        return y

    def say(self, words: str, color="soft"):
        """Words over the whole width."""
        self.y = self.wrapped(0, self.y, words, self.width, color) + 6

    def legend(self, labels: dict[str, str]):
        """What each colour is."""
        x = 0
        self.y += 16
        for color, label in labels.items():
            length = 26 + LETTER * len(label)
            if x and x + length > self.width:
                x = 0
                self.y += 20
            self.rect(x, self.y - 11, 12, 12, color)
            self.text(x + 17, self.y, label)
            x += length
        self.y += 8

    def bars(self, bars: list[Bar], part=1.0, axes=(), color="measured"):
        """Rows below each other: names at the left, or above the bars where it is narrow.

        Bars take a `part` of the room at the right of the names, and the axes have theirs. A hollow
        dot is not significant.
        """
        longest = max(len(bar.name) for bar in bars)
        left = max(160, 7 * longest + 8) if self.wide else 0
        room = self.width - left
        top = self.y
        for axis in axes:
            axis.left = left + room * axis.start
            axis.right = left + room * axis.end
            y = self.wrapped(axis.left, top, axis.heading, axis.right - axis.left)
            self.y = max(self.y, y + 8)
        for bar in bars:
            self.text(0, self.y + 19, bar.name, size=14, link=bar.link)
            self.text(self.width, self.y + 19, bar.right, anchor="end")
            top = self.y if left else self.y + 22
            self.y = top + 28
            for axis, mark in zip(axes, bar.marks, strict=True):
                for value in axis.ticks:
                    x = axis.x(value)
                    line = "soft" if value == axis.origin else "grid"
                    self.line([(x, top), (x, self.y)], line)
                if mark:
                    self.mark(mark, axis, top + 14, color)
            self.bar(bar, left, top + 14, part * room)
        for axis in axes:
            for value, words in axis.ticks.items():
                self.text(axis.x(value), self.y + 15, words, "soft", 12, "middle")
        self.y += 22 if axes else 6

    def bar(self, bar: Bar, x: float, middle: float, full: float):
        """The pieces of a bar, of which 1 is `full` pixels, and what stands behind them."""
        start = x
        for length, color, words in bar.pieces:
            length *= full
            self.rect(x, middle - 9, max(1, length - 1), 18, color)
            if length > 8 * len(words) + 4:
                self.text(
                    x + length / 2, middle + 5, words, INKS.get(color, "ink"), anchor="middle"
                )
            x += length
        if bar.limit:
            self.rect(start + bar.limit * full - 1, middle - 12, 3, 24, "ink")
        self.text(x + 6, middle + 5, bar.end, weight=600)
        if bar.code:
            self.code(x + 14 + 8.5 * len(bar.end), middle, f" + {bar.code} ")

    def mark(self, found: Estimate, axis: Axis, y: float, color: str):
        """An estimate: a dot in its interval, with an arrow where the scale ends before it does."""
        low = found.value if found.low is None else found.low
        high = found.value if found.high is None else found.high
        self.line([(axis.x(low), y), (axis.x(high), y)], color, 2)
        if low < axis.scale.low:
            self.text(axis.left, y + 5, "◀", color, anchor="middle")
        if high > axis.scale.high:
            self.text(axis.right, y + 5, "▶", color, anchor="middle")
        if axis.scale.low <= found.value <= axis.scale.high:
            self.dot(axis.x(found.value), y, color, not found.significant)

    def code(self, x: float, middle: float, words: str):
        """A `+` line of a diff on its ground; where it is narrow, on a line of its own."""
        size = min(12.5, self.width / MONO_LETTER / len(words))
        if not self.wide:
            x = 0
            middle = self.y + 9
            self.y += 24
        self.rect(x, middle - 11, len(words) * size * MONO_LETTER, 22, "added")
        self.text(x, middle + 4, words, "added-ink mono", size)

    def svg(self, inline=False) -> str:
        """The file; or an element for a page that has `style` itself."""
        size = f'width="{self.width}" height="{self.y + 4:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"'
        box = f'viewBox="0 0 {self.width} {self.y + 4:.0f}"'
        rules = "" if inline else f"<style>\n{style()}</style>\n"
        title = f"<title>{escape(self.title)}</title>"
        ground = f'<rect class="ground" {size}/>'
        shapes = "\n".join(self.shapes)
        return f"{head} {box}>\n{title}\n{rules}{ground}\n{shapes}\n</svg>\n"


class Chart:
    """Two axes on a picture, below what is drawn there."""

    def __init__(self, picture: Picture, across: Scale, up: Scale, height=240, margin=8):
        self.picture = picture
        self.across = across
        self.up = up
        self.left = 54
        self.top = picture.y + 30
        self.bottom = self.top + height
        self.right = picture.width - margin
        picture.y = self.bottom + 38

    def at(self, x, y) -> tuple[float, float]:
        """Where a point stands."""
        along = self.left + self.across.at(x) * (self.right - self.left)
        return along, self.bottom - self.up.at(y) * (self.bottom - self.top)

    def axes(self, up: str, across: str):
        """The lines, numbers and names of both axes."""
        picture = self.picture
        about = max(2, (self.bottom - self.top) // 48)
        for value, words in self.up.ticks(about).items():
            y = self.at(self.across.low, value)[1]
            picture.line([(self.left, y), (self.right, y)], "grid")
            picture.text(self.left - 7, y + 4, words, "soft", 12, "end")
        for value, words in self.across.ticks(8 if picture.wide else 4).items():
            x = self.at(value, self.up.low)[0]
            picture.text(x, self.bottom + 17, words, "soft", 12, "middle")
        picture.text(0, self.top - 12, up, "soft")
        picture.text(self.right, self.bottom + 34, across, "soft", anchor="end")

    def line(self, xs, ys, color: str, thick: float, dashes="none"):
        """A curve where it is finite; an inner <svg> cuts off what is off the scale."""
        width, height = self.right - self.left, self.bottom - self.top
        place = f'x="{self.left}" y="{self.top}" width="{width}" height="{height}"'
        box = f'viewBox="{self.left} {self.top} {width} {height}"'
        points = []
        for x, y in zip(xs, ys, strict=True):
            if math.isfinite(y):
                points.append(self.at(x, y))
        self.picture.shapes.append(f"<svg {place} {box}>")
        self.picture.line(points, color, thick, dashes)
        self.picture.shapes.append("</svg>")

    def upright(self, x: float, words: str):
        """A line from the bottom to the top, with words at its right."""
        along, _ = self.at(x, self.up.low)
        self.picture.line([(along, self.bottom), (along, self.top)], "soft", 1, "4 3")
        self.picture.text(along + 5, self.top + 12, words, "soft")

    def area(self, edge, color: str):
        """What lies inside of an edge."""
        places = [self.at(x, y) for x, y in edge]
        points = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
        area = f'<polygon class="{color}" points="{points}" fill-opacity="0.1"/>'
        self.picture.shapes.append(area)

    def end_labels(self, ends: dict[str, float], colors: dict[str, str]):
        """The name of each curve beside its end, from the highest down, without overlap."""
        apart = 17  # pixels
        y = self.top
        names = sorted(ends, key=ends.get, reverse=True)
        for k, name in enumerate(names):
            x, end = self.at(self.across.high, ends[name])
            lowest = self.bottom - apart * (len(names) - 1 - k)  # room for those below
            y = min(max(y + apart, end), lowest)
            color = colors.get(name, "soft")
            self.picture.line([(x + 2, end), (x + 16, y)], "soft")
            words = name if self.picture.wide else name.split()[0]
            weight = 600 if name in colors else 400
            self.picture.text(x + 20, y + 4, words, color, weight=weight)


def style() -> str:
    """The rules of CSS for the colours, so that one rule turns them on a dark ground."""
    light = ""
    dark = ""
    for name, (on_white, on_dark) in COLORS.items():
        light += f".{name}{{fill:{on_white}}}.{name}-line{{stroke:{on_white}}}"
        dark += f".{name}{{fill:{on_dark}}}.{name}-line{{stroke:{on_dark}}}"
    words = f"text{{font-family:{SANS};white-space:pre}}.mono{{font-family:{MONO}}}"
    return f"{words}\n{light}\n@media (prefers-color-scheme:dark){{{dark}}}\n"


def embedded(name: str, alt: str, folder: str = "") -> str:
    """The HTML that shows docs/<name>.svg, or its narrow variant on a small screen."""
    source = f'<source media="(max-width: 600px)" srcset="{folder}{name}-narrow.svg">'
    image = f'<img src="{folder}{name}.svg" alt="{escape(alt)}">'
    return f"<picture>{source}{image}</picture>"
