"""Pictures in SVG: shapes and words in named colours, on a white ground and on a dark one.

A picture is drawn at its true size. On a screen below 600 pixels a page takes its narrow variant,
so that no words shrink (`embedded` writes the HTML for that).
"""

from html import escape

from ladder.show import colors

WIDE = 832  # the column of a page on GitHub
NARROW = 358  # the same on a phone
# On a white ground, on a dark one. The grounds are GitHub's.
COLORS = {
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "box": ("#eaeef2", "#21262d"),  # the ground of a thing that is drawn
    "added": ("#dafbe1", "#12301c"),  # the ground of a diff's `+` line
    "added-ink": ("#0a4a1f", "#aff5b4"),
    "reported": (colors.REPORTED, colors.REPORTED_ON_DARK),
    "measured": (colors.MEASURED, colors.MEASURED_ON_DARK),
    "faint": ("#a5d2ca", "#1d5a51"),  # single steps of what was measured
    "on-dark": ("#ffffff", "#0d1117"),  # words on matmuls and optimizer
    "on-light": ("#000000", "#0d1117"),  # words on attention and memory traffic
}
for name, on_white, on_dark in zip(
    ("matmuls", "attention", "traffic", "optimizer"),  # in the order of ladder.measure.work.PARTS
    colors.PARTS,
    colors.PARTS_ON_DARK,
    strict=True,
):
    COLORS[name] = (on_white, on_dark)
PARTS = {"matmuls": "on-dark", "attention": "on-light", "traffic": "on-light"}
PARTS |= {"optimizer": "on-dark"}  # each part of a step, and the words on it
SANS = '-apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
ANCHORS = {"left": "start", "middle": "middle", "right": "end"}


class Picture:
    """A drawing `width` pixels wide. y grows downwards; the last shape decides on the height."""

    def __init__(self, width: int, title: str):
        self.width = width
        self.title = title
        self.shapes = []
        self.used = {"ground"}

    def rect(self, x, y, width, height, color, radius=0):
        """A filled rectangle, its upper left corner at (x, y)."""
        self.used.add(color)
        size = f'width="{number(width)}" height="{number(height)}"'
        corner = f' rx="{radius}"' if radius else ""
        shape = f'<rect x="{number(x)}" y="{number(y)}" {size}{corner} class="{color}"/>'
        self.shapes.append(shape)

    def frame(self, x, y, width, height, color="soft", pale=False):
        """The outline of a rectangle: of a box, or, dashed and filled pale, of what is gone."""
        self.used.add(color)
        size = f'width="{number(width)}" height="{number(height)}"'
        style = f'class="{color} {color}-line" stroke-width="1"'
        style += ' fill-opacity=".2" stroke-dasharray="4 3"' if pale else ' fill-opacity="0"'
        self.shapes.append(f'<rect x="{number(x)}" y="{number(y)}" {size} {style}/>')

    def arrow(self, x, start, end, color="ink", width=1.5):
        """A vertical arrow from `start` to `end`."""
        sign = 1 if end > start else -1
        self.line([(x, start), (x, end - 6 * sign)], color, width)
        self.polygon([(x - 5, end - 8 * sign), (x + 5, end - 8 * sign), (x, end)], color)

    def polygon(self, points, color):
        """A filled shape."""
        self.used.add(color)
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.shapes.append(f'<polygon points="{path}" class="{color}"/>')

    def line(self, points, color, width=1, dashed=False):
        """A line through `points`, each (x, y)."""
        self.used.add(color)
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        style = f'fill="none" stroke-width="{width}"{dash} class="{color}-line"'
        self.shapes.append(f'<polyline points="{path}" {style}/>')

    def dot(self, x, y, color, hollow=False, radius=4.5):
        """A dot; a hollow one shows the ground."""
        self.used.add(color)
        fill = "ground" if hollow else color
        style = f'r="{radius}" stroke-width="2" class="{fill} {color}-line"'
        self.shapes.append(f'<circle cx="{number(x)}" cy="{number(y)}" {style}/>')

    def text(
        self, x, y, words, color="ink", size=14, align="left", bold=False, mono=False, turned=False
    ):
        """Words on the line y, which begin, end or have their middle at x; turned, they rise."""
        self.used.add(color)
        style = f'class="{color}{" mono" if mono else ""}" font-size="{size}"'
        if align != "left":
            style += f' text-anchor="{ANCHORS[align]}"'
        if bold:
            style += ' font-weight="600"'
        if turned:
            style += f' transform="rotate(-90 {number(x)} {number(y)})"'
        at = f'x="{number(x)}" y="{number(y)}"'
        self.shapes.append(f"<text {at} {style}>{escape(words, quote=False)}</text>")

    def svg(self, height) -> str:
        """The file. Colours are classes, so that one rule turns them on a dark ground."""
        rules = {0: "", 1: ""}
        for name in sorted(self.used):
            for ground, color in enumerate(COLORS[name]):
                rules[ground] += f".{name}{{fill:{color}}}.{name}-line{{stroke:{color}}}"
        return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" \
height="{height}" viewBox="0 0 {self.width} {height}" role="img">
<title>{escape(self.title, quote=False)}</title>
<style>
text{{font-family:{SANS};white-space:pre}}.mono{{font-family:{MONO}}}
{rules[0]}
@media (prefers-color-scheme:dark){{{rules[1]}}}
</style>
<rect width="{self.width}" height="{height}" class="ground"/>
{chr(10).join(self.shapes)}
</svg>
"""


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def embedded(name: str, alt: str, folder: str = "") -> str:
    """The HTML that shows docs/<name>.svg, or its narrow variant on a small screen."""
    source = f'<source media="(max-width: 600px)" srcset="{folder}{name}-narrow.svg">'
    image = f'<img src="{folder}{name}.svg" alt="{escape(alt)}">'
    return f"<picture>{source}{image}</picture>"
