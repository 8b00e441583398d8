"""Pictures in SVG: shapes and words in named colours, on a white ground and on a dark one.

A picture is drawn at its true size. On a screen below 600 pixels a page takes its narrow variant,
so that no words shrink (`embedded` writes the HTML for that).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap

from ladder.measure.stats import Estimate
from ladder.show import colors
from ladder.show.draw import Scale

WIDE = 832  # the column of a page on GitHub
NARROW = 358  # the same on a phone
# On a white ground, on a dark one. The grounds are GitHub's.
COLORS = {
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "box": ("#eaeef2", "#21262d"),
    "added": ("#dafbe1", "#12301c"),  # the ground of a diff's `+` line
    "added-ink": ("#0a4a1f", "#aff5b4"),
    "reported": (colors.REPORTED, colors.REPORTED_ON_DARK),
    "measured": (colors.MEASURED, colors.MEASURED_ON_DARK),
    "faint": ("#a5d2ca", "#1d5a51"),  # single steps of what was measured
    "on-light": ("#000000", "#0d1117"),  # words on attention and memory traffic
}
# The parts of a step, in the order of ladder.measure.work.PARTS.
PARTS = ("matmuls", "attention", "traffic", "optimizer")
COLORS |= zip(PARTS, zip(colors.PARTS, colors.PARTS_ON_DARK, strict=True), strict=True)
# What words on a piece of a bar are written in.
INKS = {"matmuls": "ground", "attention": "on-light", "traffic": "on-light"}
INKS |= {"optimizer": "ground", "ink": "ground", "grid": "ink", "box": "ink"}
SANS = '-apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
LETTER = 6.8  # pixels of a letter, at most, at the usual size of words
MONO_LETTER = 0.602  # the same of most monospaced letters, as a part of their size


@dataclass
class Axis:
    """Where estimates stand: from `start` to `end`, parts of the room at the right of the names."""

    heading: str
    start: float
    end: float
    scale: Scale
    ticks: dict[float, str]  # that at 1 has a darker line: no gain, or all of something
    function: Callable = float  # of a value, before it is on the scale

    def at(self, value: float) -> float:
        """Where a value stands, as a part of the room."""
        return self.start + self.scale.at(self.function(value)) * (self.end - self.start)


@dataclass
class Row:
    """A row of a picture: a name, then a bar, a dot on each axis, and words at the right edge."""

    name: str
    bar: list[tuple] = field(default_factory=list)  # of each piece: part of 1, colour, words
    end: str = ""  # words behind the bar
    code: str = ""  # the line that a diff adds
    marks: list[Estimate | None] = field(default_factory=list)  # one for each axis
    right: str = ""


class Picture:
    """A drawing `width` pixels wide. y grows downwards, and `y` is how far it has come."""

    def __init__(self, width: int, title: str):
        self.width = width
        self.wide = width == WIDE
        self.title = title
        self.shapes = []
        self.used = {"ground"}
        self.y = 0

    def add(self, element: str, color: str, inside="", **attributes):
        """A shape or words. Numbers are in pixels; `_` in a name of an attribute is a hyphen."""
        self.used |= {*color.replace("-line", "").split()} & COLORS.keys()
        said = f'class="{color}"'
        for name, value in attributes.items():
            if isinstance(value, float):
                value = f"{value:.1f}".removesuffix(".0")
            said += f' {name.replace("_", "-")}="{value}"'
        self.shapes.append(f"<{element} {said}>{escape(inside, quote=False)}</{element}>")

    def rect(self, x, y, width, height, color):
        """A filled rectangle, its upper left corner at (x, y)."""
        self.add("rect", color, x=float(x), y=float(y), width=float(width), height=float(height))

    def line(self, points, color, width=1.0, dashes="none"):
        """A line through `points`, each (x, y)."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = {"fill": "none", "stroke_width": width, "stroke_dasharray": dashes}
        self.add("polyline", f"{color}-line", points=path, **style)

    def dot(self, x, y, color, hollow=False, radius=4.5):
        """A dot; a hollow one shows the ground."""
        fill = "ground" if hollow else color
        self.add("circle", f"{fill} {color}-line", cx=x, cy=y, r=radius, stroke_width=2)

    def text(self, x, y, words, color="ink", size=13.0, anchor="start", weight=400):
        """Words on the line y, which start, end or have their middle at x."""
        if not words:
            return
        style = {"font_size": size, "text_anchor": anchor, "font_weight": weight}
        self.add("text", color, words, x=float(x), y=float(y), **style)

    def wrapped(self, x, y, words, width, color="soft", weight=400) -> float:
        """Words in lines of a width; returns where they end."""
        for line in wrap(words, int(width / LETTER)):
            y += 18
            self.text(x, y, line, color, weight=weight)
        return y

    def say(self, words: str, color="soft", weight=400):
        """Words over the whole width."""
        self.y = self.wrapped(0, self.y, words, self.width, color, weight) + 6

    def heading(self, words: str):
        """Words over what follows."""
        self.y += 8
        self.say(words, "ink", 600)

    def legend(self, labels: dict[str, str]):
        """What each colour is."""
        x = 0
        self.y += 16
        for color, label in labels.items():
            length = 26 + LETTER * len(label)
            if x + length > self.width:
                x = 0
                self.y += 20
            self.rect(x, self.y - 11, 12, 12, color)
            self.text(x + 17, self.y, label)
            x += length
        self.y += 8

    def rows(self, rows: list[Row], left=None, bars=1.0, axes=(), color="measured"):
        """Rows below each other, names in a column that is `left` wide, or above bars if it is 0.

        Bars take a part of the room at the right of the names, and so do the axes. A hollow dot is
        not significant.
        """
        if left is None:
            left = 160 if self.wide else 0
        room = self.width - left
        top = self.y
        for axis in axes:
            x = left + room * axis.start
            y = self.wrapped(x, top, axis.heading, room * (axis.end - axis.start))
            self.y = max(self.y, y + 8)
        for row in rows:
            self.text(0, self.y + 19, row.name, size=14)
            self.text(self.width, self.y + 19, row.right, anchor="end")
            top = self.y if left else self.y + 22
            middle = top + 14
            self.y = top + 28
            for axis, mark in zip(axes, row.marks, strict=True):
                for value in axis.ticks:
                    x = left + room * axis.at(value)
                    line = "soft" if value == 1 else "grid"
                    self.line([(x, top), (x, self.y)], line)
                if mark:
                    ends = (mark.low or mark.value, mark.high or mark.value)
                    self.line([(left + room * axis.at(end), middle) for end in ends], color, 2)
                    self.dot(left + room * axis.at(mark.value), middle, color, not mark.significant)
            x = left
            for part, piece, words in row.bar:
                length = part * bars * room
                self.rect(x, middle - 9, max(1, length - 1), 18, piece)
                if length > 8 * len(words) + 4:
                    self.text(x + length / 2, middle + 5, words, INKS.get(piece), anchor="middle")
                x += length
            self.text(x + 6, middle + 5, row.end, weight=600)
            if row.code:
                self.code(x + 14 + 8.5 * len(row.end), middle, f"+ {row.code}")
        for axis in axes:
            for value, words in axis.ticks.items():
                self.text(left + room * axis.at(value), self.y + 15, words, "soft", 12.0, "middle")
        self.y += 22 if axes else 6

    def code(self, x: float, middle: float, words: str):
        """A `+` line of a diff on its ground; where it is narrow, on a line of its own."""
        size = min(12.5, self.width / MONO_LETTER / (len(words) + 1))
        if not self.wide:
            x = 0
            middle = self.y + 9
            self.y += 24
        self.rect(x, middle - 11, (len(words) + 1) * size * MONO_LETTER, 22, "added")
        self.text(x + size * MONO_LETTER / 2, middle + 4, words, "added-ink mono", size)

    def svg(self) -> str:
        """The file. Colours are classes, so that one rule turns them on a dark ground."""
        rules = {0: "", 1: ""}
        for name in sorted(self.used):
            for ground, color in enumerate(COLORS[name]):
                rules[ground] += f".{name}{{fill:{color}}}.{name}-line{{stroke:{color}}}"
        height = round(self.y + 4)
        shapes = "\n".join(self.shapes)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" \
height="{height}" viewBox="0 0 {self.width} {height}" role="img">
<title>{escape(self.title, quote=False)}</title>
<style>
text{{font-family:{SANS};white-space:pre}}.mono{{font-family:{MONO}}}
{rules[0]}
@media (prefers-color-scheme:dark){{{rules[1]}}}
</style>
<rect width="{self.width}" height="{height}" class="ground"/>
{shapes}
</svg>
"""


def embedded(name: str, alt: str, folder: str = "") -> str:
    """The HTML that shows docs/<name>.svg, or its narrow variant on a small screen."""
    source = f'<source media="(max-width: 600px)" srcset="{folder}{name}-narrow.svg">'
    image = f'<img src="{folder}{name}.svg" alt="{escape(alt)}">'
    return f"<picture>{source}{image}</picture>"
