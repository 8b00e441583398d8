"""The pictures in docs/ that are made from scripts, logs and counts."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blocks import A100, B, climbs_of, gain_words, measured_marker, percent_words, reported_rungs
from step_picture import step_picture
from svg import NARROW, WIDE, Picture

from ladder.commands.roofline import share_of
from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.docstrings import title
from ladder.measure.rows import Row
from ladder.measure.scripts import base_of, number_of
from ladder.show.diffs import diff_lines
from ladder.show.draw import Scale
from ladder.show.reported import reported_climb, reported_gpus
from ladder.show.tables import title_of
from ladder.show.training import axes_of, find_runs, gather_run, panel, read_logs

# The heart of a rung's diff. Each must be a `+` line there, where `…` stands for what is left out.
HEARTS = {
    2: 'torch.set_float32_matmul_precision("high")',
    3: "autocast = torch.autocast(device.type, dtype, …)",
    5: "model = torch.compile(model)",
    6: "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    7: "vocab_size: int = 50304",
    10: "torch.optim.AdamW(groups, …, fused=True)",
}


def pictures() -> dict[str, str]:
    """Every generated picture of docs/ by its file name."""
    made = {"step.svg": step_picture(find_gpu(A100), B)}
    for name, draw in drawings().items():
        made[f"{name}.svg"] = draw(WIDE)
        made[f"{name}-narrow.svg"] = draw(NARROW)
    return made


def drawings() -> dict[str, Callable[[int], str]]:
    """What draws each picture, at a width."""
    found = {"ladder": draw_ladder, "curve": draw_curve, "cards": draw_cards}
    for _, climb, rows in climbs_of(measured_marker((ROOT / "README.md").read_text("utf-8"))):
        found[f"measured-{climb.device_type}"] = lambda width, rows=rows: draw_climb(rows, width)
    return found


# ------------------------------------------------------------------ docs/ladder.svg


def draw_ladder(width: int) -> str:
    """The reported milliseconds of each rung, and the heart of its diff."""
    other = reported_climb()
    wide = width == WIDE
    picture = Picture(width, f"Milliseconds of a step, reported by {other['who']}, and the diffs")
    left = 146 if wide else 0  # where bars begin
    longest = 540 if wide else 286
    words = "One training step of GPT-2 (124M) on one A100, in milliseconds"
    if wide:
        picture.text(0, 14, f"{words}: reported by {other['who']}", "soft", 13)
        y = 28
    else:
        picture.text(0, 14, words.removesuffix(", in milliseconds"), "soft", 12.5)
        picture.text(0, 31, f"milliseconds, reported by {other['who']}", "soft", 12.5)
        y = 44
    first = before = None
    for path in reported_rungs():
        ms = other["ms"][f"{number_of(path):02}"]
        first = first or ms
        name, _, rest = title(path).partition(" ")
        bar = y if wide else y + 20  # its upper edge
        thick = 26 if wide else 16
        words = y + 19 if wide else y + 14
        picture.text(0, words, name, "soft", 14)
        picture.text(23, words, rest, size=14)
        length = longest * ms / first
        picture.rect(left, bar, length, thick, "reported")
        end = f"{ms} ms" if ms == first else f"{ms}"
        picture.text(left + length + 7, bar + thick / 2 + 5, end, size=14, bold=True)
        y = bar + thick + (11 if wide else 10)
        if before:
            picture.text(width, words, f"÷ {rounded(before / ms)}", "soft", 13, "right", bold=True)
            heart = heart_of(path)
            x = left + length + (46 if wide else 40)
            size = 12.5 if wide else 11
            if x + added_width(heart, size) <= width:
                draw_added(picture, x, bar + thick / 2, heart, size)
            else:  # below the bar
                size *= min(1, width / added_width(heart, size))
                draw_added(picture, 0, bar + 28, heart, size)
                y += 19
        before = ms
    return picture.svg(round(y))


def rounded(ratio: float) -> str:
    """Such as `3.0` or `1.35`."""
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def added_width(words: str, size: float) -> float:
    """How wide a `+` line is, in most monospaced letters."""
    return (len(words) + 3) * size * 0.602


def draw_added(picture: Picture, x: float, middle: float, words: str, size: float):
    """A `+` line of a diff on its ground."""
    height = size * 1.75
    picture.rect(x, middle - height / 2, added_width(words, size), height, "added", 4)
    x += size * 0.3
    picture.text(x, middle + size * 0.35, f"+ {words}", "added-ink", round(size, 2), mono=True)


def heart_of(path: Path) -> str:
    """The heart of a rung's diff. Raises ValueError if the diff has no such line."""
    heart = HEARTS[number_of(path)]
    pattern = ".*".join(re.escape(words) for words in heart.split("…"))
    for line in diff_lines(base_of(path), path)[2:]:
        if line.startswith("+") and re.search(pattern, line):
            return heart
    raise ValueError(f"{path.stem} adds no line with {heart}: mend HEARTS in dev/pictures.py")


# ------------------------------------------------------------------ docs/measured-….svg


def draw_climb(rows: list[Row], width: int) -> str:
    """The milliseconds of each rung, and what it gains over the one before with its interval."""
    rows = [row for row in rows if row.logs]
    wide = width == WIDE
    what = "Measured here: milliseconds a step; tokens per second gained over the rung before"
    picture = Picture(width, what)
    left = 164 if wide else 0  # where bars begin
    longest = 190 if wide else 90
    axis = Gains(rows, *((430, 670) if wide else (150, width - 6)))
    height = 26 if wide else 46
    if wide:
        picture.text(left, 14, "measured here, ms a step", "soft", 13)
        picture.text(axis.start, 14, "gain over the rung before, with 95 % interval", "soft", 13)
    else:
        picture.text(0, 14, "ms a step", "soft", 12.5)
        picture.text(axis.start, 14, "gain, 95 % interval", "soft", 12.5)
    top = 26
    bottom = top + height * len(rows)
    axis.draw(picture, top, bottom)
    for number, row in enumerate(rows):
        y = top + height * number
        middle = y + 13 if wide else y + 32
        name, _, rest = title_of(row).partition(" ")
        words = y + 18 if wide else y + 16
        picture.text(0, words, name, "soft", 14)
        picture.text(23, words, rest, size=14)
        length = longest * row.ms / rows[0].ms
        picture.rect(left, middle - 8, length, 16, "measured")
        picture.text(left + length + 6, middle + 5, f"{row.ms:,.0f}", size=13)
        if row.gain:
            axis.mark(picture, middle, row.gain, "measured")
            picture.text(width, words, gain_words(row.gain), size=13, align="right")
    return picture.svg(bottom + 22)


class Gains:
    """A logarithmic axis of gains in speed, from pixel `start` to `end`, that holds `rows`."""

    TICKS = (-50, -20, 0, 20, 50, 100, 200, 400)  # per cent

    def __init__(self, rows: list[Row], start: float, end: float):
        gains = [row.gain for row in rows if row.gain]
        self.low = min(gain.low or gain.value for gain in gains)
        self.high = max(gain.high or gain.value for gain in gains)
        self.start = start
        self.end = end

    def at(self, ratio: float) -> float:
        """Where a gain stands: 1.2 is 20 % faster."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def draw(self, picture: Picture, top: float, bottom: float):
        """Its lines from top to bottom, with their per cent below."""
        for tick in self.TICKS:
            ratio = 1 + tick / 100
            if self.low <= ratio <= self.high:
                x = self.at(ratio)
                color = "soft" if tick == 0 else "grid"
                picture.line([(x, top), (x, bottom)], color)
                picture.text(x, bottom + 16, percent_words(ratio), "soft", 12, "middle")

    def mark(self, picture: Picture, y: float, gain, color: str):
        """A gain and its interval; hollow if it does not survive Holm's correction."""
        if gain.low:
            picture.line([(self.at(gain.low), y), (self.at(gain.high), y)], color, 2)
        picture.dot(self.at(gain.value), y, color, hollow=not gain.significant)


# ------------------------------------------------------------------ docs/curve.svg

TRAINED = ROOT / "logs" / "2026-11-25-amd-epyc-1-thread-train-tiny"


def draw_curve(width: int) -> str:
    """The losses of the one training run that is published."""
    texts = find_runs(TRAINED)[TRAINED]
    run = gather_run(TRAINED, read_logs(texts)[0])
    axis = axes_of([run])[0]
    loss = panel([run], [], axis, "loss")
    up = Scale(loss.up.low, loss.highest)
    wide = width == WIDE
    picture = Picture(width, "Loss of a small model while it trains, measured here")
    chart = Chart(picture, 36, width - 8, 30, 260 if wide else 230, loss.across, up)
    chart.axes("loss, nats a token", axis.name, 8 if wide else 4)
    kinds = {kind: (x, y) for kind, _, x, y in loss.lines}
    chart.line(*kinds["thin"], "faint", 1)
    chart.line(*kinds["mean"], "measured", 2)
    chart.line(*kinds["val"], "ink", 1.5)
    for x, y in zip(*kinds["val"], strict=True):
        picture.dot(*chart.at(x, y), "ink", radius=2)
    x = chart.right
    picture.text(x, 52, "each step", "soft", 13, "right")
    picture.text(x, 70, "running mean of the steps", "measured", 13, "right")
    picture.text(x, 88, "validation, on held-out text", "ink", 13, "right")
    for mark in loss.marks:
        x, _ = chart.at(mark, up.low)
        picture.line([(x, chart.top), (x, chart.bottom)], "soft", dashed=True)
        picture.text(x + 5, chart.bottom - 6, "stopped and resumed", "soft", 12)
    return picture.svg(chart.bottom + 40)


@dataclass
class Chart:
    """Two axes on a picture, and where they stand."""

    picture: Picture
    left: float
    right: float
    top: float
    bottom: float
    across: Scale
    up: Scale

    def at(self, x, y) -> tuple[float, float]:
        """Where a point stands; a value above the axis stands at its end."""
        along = self.left + self.across.at(x) * (self.right - self.left)
        return along, self.bottom - min(1, self.up.at(y)) * (self.bottom - self.top)

    def line(self, xs, ys, color: str, thick: float, dashed=False):
        """A curve."""
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True)]
        self.picture.line(points, color, thick, dashed)

    def axes(self, up: str, across: str, ticks: int):
        """The lines, numbers and names of both axes."""
        for value in self.up.round_values(5):
            _, y = self.at(0, value)
            self.picture.line([(self.left, y), (self.right, y)], "grid")
            self.picture.text(self.left - 7, y + 4, f"{value:,g}", "soft", 12, "right")
        for value in self.across.round_values(ticks):
            x, _ = self.at(value, 0)
            self.picture.text(x, self.bottom + 17, f"{value:,g}", "soft", 12, "middle")
        self.picture.text(0, self.top - 14, up, "soft", 13)
        self.picture.text(self.right, self.bottom + 34, across, "soft", 13, "right")


# ------------------------------------------------------------------ docs/cards.svg


def draw_cards(width: int) -> str:
    """Twenty GPUs: the reported tokens per second, and which share of the roofline that is."""
    fastest = {row["gpu"]: row for row in sorted(reported_gpus(), key=lambda row: row["tok_per_s"])}
    rows = sorted(fastest.values(), key=lambda row: -row["tok_per_s"])
    highest = rows[0]["tok_per_s"]
    wide = width == WIDE
    picture = Picture(width, "Twenty GPUs: tokens per second, reported, and share of the roofline")
    left = 146 if wide else 0  # where bars begin
    longest = 216 if wide else 84
    share_left = 452 if wide else 170  # 0 %
    share_width = 200 if wide else width - share_left - 54  # 100 %
    height = 22 if wide else 40
    if wide:
        picture.text(left, 14, "reported: thousand tokens a second, at B", "soft", 13)
        picture.text(share_left, 14, "share of the roofline, calculated: ms of ms", "soft", 13)
    else:
        picture.text(0, 14, "1000 tok/s, reported", "soft", 12.5)
        picture.text(share_left, 14, "share of the roofline", "soft", 12.5)
    bottom = 26 + height * len(rows)
    for per_cent in (0, 50, 100):
        x = share_left + share_width * per_cent / 100
        picture.line([(x, 24), (x, bottom)], "soft" if per_cent == 100 else "grid")
        picture.text(x, bottom + 16, f"{per_cent} %", "soft", 12, "middle")
    for number, row in enumerate(rows):
        y = 26 + height * number
        middle = y + 11 if wide else y + 28
        picture.text(0, y + 15, row["gpu"], size=13.5)
        length = longest * row["tok_per_s"] / highest
        picture.rect(left, middle - 7, length, 14, "reported")
        rate = f"{row['tok_per_s'] / 1000:.3g}, B={row['B']:.0f}"
        picture.text(left + length + 6, middle + 5, rate, size=12.5)
        share = share_of(row, data_sheet=False)
        picture.line([(share_left, middle), (share_left + share_width * share, middle)], "grid", 2)
        picture.dot(share_left + share_width * share, middle, "reported")
        words = f"{share * 100:.0f} %"
        if wide:
            words += f": {row['ms_a_step'] * share:,.0f} of {row['ms_a_step']:,.0f}"
        picture.text(width, middle + 5, words, size=12.5, align="right")
    return picture.svg(bottom + 22)
