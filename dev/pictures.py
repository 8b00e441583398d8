"""The pictures in docs/ that are made from scripts, logs and counts."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import primer_pictures as primer
from blocks import (
    A100,
    Machine,
    climbs_of,
    gain_words,
    machine_of,
    machines,
    measured_marker,
    percent_words,
    reported_rungs,
)
from svg import NARROW, PARTS, WIDE, Picture

from ladder.commands.roofline import batch_for, share_of
from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.docstrings import title
from ladder.measure.rates import rates_of
from ladder.measure.rows import Row, median_ms
from ladder.measure.scripts import base_of, number_of, rungs
from ladder.measure.work import LABELS, roofline_ms, work
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
    made = {}
    for name, draw in drawings().items():
        made[f"{name}.svg"] = draw(WIDE)
        made[f"{name}-narrow.svg"] = draw(NARROW)
    return made


def drawings() -> dict[str, Callable[[int], str]]:
    """What draws each picture, at a width."""
    found = {"ladder": draw_ladder, "curve": draw_curve, "cards": draw_cards}
    found |= {"step": primer.draw_step, "formats": primer.draw_formats}
    found |= {"fusion": primer.draw_fusion, "tiles": primer.draw_tiles, "adamw": primer.draw_adamw}
    found |= {"learned": draw_learned, "rounds": draw_rounds}
    found |= {"two-cards": draw_two_cards, "loss": draw_loss}
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

    TICKS = (-50, -20, -10, 0, 10, 20, 50, 100, 200, 400)  # per cent

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

    def draw(self, picture: Picture, top: float, bottom: float, ticks=TICKS):
        """Its lines from top to bottom, with their per cent below."""
        drawn = []
        for tick in sorted(ticks, key=abs):
            ratio = 1 + tick / 100
            x = self.at(ratio)
            has_room = all(abs(x - other) > 42 for other in drawn)
            if self.low <= ratio <= self.high and has_room:
                drawn.append(x)
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
    curves = {name: (x, y) for name, _, x, y in loss.lines}
    chart.line(*curves["thin"], "faint", 1)
    chart.line(*curves["mean"], "measured", 2)
    chart.line(*curves["val"], "ink", 1.5)
    for x, y in zip(*curves["val"], strict=True):
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
        share = share_of(row)
        picture.line([(share_left, middle), (share_left + share_width * share, middle)], "grid", 2)
        picture.dot(share_left + share_width * share, middle, "reported")
        words = f"{share * 100:.0f} %"
        if wide:
            words += f": {row['ms_a_step'] * share:,.0f} of {row['ms_a_step']:,.0f}"
        picture.text(width, middle + 5, words, size=12.5, align="right")
    return picture.svg(bottom + 22)


# ------------------------------------------------------------------ docs/learned.svg


def draw_learned(width: int) -> str:
    """What each rung gained on each machine that was measured here."""
    found = machines()
    picture = Picture(width, "Measured here: the gain of each rung over the one before, by machine")
    axis = Gains([row for machine in found for row in machine.ran.values()], 0, 1)
    wide = width == WIDE
    names = 146  # width of the column of names
    rungs_here = max((machine.ran for machine in found), key=len)
    height = 24 if wide else 22
    top = 62
    for index, machine in enumerate(found):
        if wide:
            gap = 44
            length = (width - names - gap * (len(found) - 1)) / len(found)
            axis.start = names + index * (length + gap)
            axis.end = axis.start + length
        else:
            axis.start = names
            axis.end = width - 8
        best = max(machine.ran)
        place = axis.start if wide else 0
        picture.text(place, top - 46, machine_label(machine), size=13.5, bold=True)
        rate = machine.climb.rate("peak_flops") / 1e12
        words = f"{rate:.2g} TFLOP/s in half precision"
        picture.text(place, top - 28, words, "soft", 12.5)
        words = f"{best} is {machine.ran[best].total.value:.1f} times as fast as 00"
        picture.text(place, top - 11, words, "soft", 12.5)
        bottom = top + height * (len(rungs_here) - 1)
        axis.draw(picture, top, bottom, ticks=(-50, 0, 100))
        for number, row in machine.ran.items():
            y = top + height * (number - 1) + height / 2
            if row.gain:
                axis.mark(picture, y, row.gain, "measured")
            if row.gain and (index == 0 or not wide):
                name, _, rest = title_of(row).partition(" ")
                picture.text(0, y + 5, name, "soft", 13.5)
                picture.text(22, y + 5, rest, size=13.5)
        if not wide:
            top = bottom + 96
    return picture.svg(bottom + 24)


def machine_label(machine: Machine) -> str:
    """The name of a machine without what all of them have."""
    label = re.sub(r"\(.*?\)| Processor| @.*?(?=,)", "", machine_of([*machine.ran.values()]))
    return label.replace(" ,", ",").replace(", T=256", "")


# ------------------------------------------------------------------ docs/rounds.svg


def draw_rounds(width: int) -> str:
    """How the rounds of a climb become a gain with an interval: its last two rungs."""
    *_, (_, _, rows) = climbs_of(measured_marker((ROOT / "README.md").read_text("utf-8")))
    before, after = rows[-2:]
    old, new = (title_of(row).partition(" ")[0] for row in (before, after))
    wide = width == WIDE
    picture = Picture(width, "Six rounds of two rungs, the gain of each round, and its interval")
    times = {k: (median_ms(before.logs[k]), median_ms(after.logs[k])) for k in after.logs}
    everything = [ms for pair in times.values() for ms in pair]
    scale = Scale(min(everything), max(everything))
    left = 72 if wide else 62
    length = 300 if wide else 112
    axis = Gains([after], *((476, 730) if wide else (208, width - 8)))
    axis.low = min([axis.low, 0.99, *(slow / fast for slow, fast in times.values())])
    axis.high = max([axis.high, *(slow / fast for slow, fast in times.values())])
    picture.text(left, 14, f"median ms: ● {new}  ○ {old}", "soft", 13)
    picture.text(axis.start, 14, f"gain of {new} over {old}", "soft", 13)
    top, height = 26, 26
    bottom = top + height * (len(times) + 1) + 8
    axis.draw(picture, top, bottom)
    for index, (k, pair) in enumerate(sorted(times.items())):
        y = top + height * index + height / 2
        picture.text(0, y + 5, f"round {k}", size=13.5)
        slow, fast = (left + length * scale.at(ms) for ms in pair)
        picture.line([(fast, y), (slow, y)], "grid", 2)
        picture.dot(slow, y, "measured", hollow=True)
        picture.dot(fast, y, "measured")
        ratio = pair[0] / pair[1]
        picture.dot(axis.at(ratio), y, "measured")
        if wide:
            picture.text(width, y + 5, percent_words(ratio), size=13, align="right")
    y = bottom - height / 2
    picture.text(0, y + 5, "mean", size=13.5, bold=True)
    picture.text(left, y + 5, gain_words(after.gain), size=13.5, bold=True)
    axis.mark(picture, y, after.gain, "ink")
    for ms in scale.round_values(4 if wide else 2):
        x = left + length * scale.at(ms)
        picture.text(x, bottom + 16, f"{ms:,.0f}", "soft", 12, "middle")
    return picture.svg(bottom + 24)


# ------------------------------------------------------------------ docs/two-cards.svg


def draw_two_cards(width: int) -> str:
    """Why an A100 gains more than an RTX 4090: the parts of a step, before and after."""
    wide = width == WIDE
    picture = Picture(width, "The parts of a step on an A100 and on an RTX 4090, calculated")
    names = {path.stem: title(path) for path in rungs()}
    bars = []
    for name in (A100, "NVIDIA GeForce RTX 4090"):
        gpu = find_gpu(name)
        B = batch_for(gpu)
        steps = work(B)
        for stem in ("baseline", "10_fused_adamw"):
            parts = [ms / B for ms in roofline_ms(steps[stem], rates_of(gpu))]
            bars.append((f"{gpu.name}, B={B}", names[stem], parts))
    longest = max(sum(parts) for _, _, parts in bars)
    left = 132 if wide else 0
    words = "Calculated: milliseconds for 1024 tokens"
    picture.text(0, 15, words, "soft", 13)
    x, y = (left + 150, 15) if wide else (0, 36)
    for part, label in zip(PARTS, LABELS, strict=True):
        picture.rect(x, y - 11, 12, 12, part)
        picture.text(x + 17, y, label, size=13)
        x += 30 + 7.2 * len(label)
        if not wide and x > 240:
            x, y = 0, y + 20
    y += 16
    before = 0
    for index, (card, rung, parts) in enumerate(bars):
        total = sum(parts)
        if index % 2 == 0:
            y += 22
            picture.text(0, y, card, size=14, bold=True)
            y += 8
        if not wide:
            picture.text(0, y + 14, rung, size=13.5)
            y += 20
        else:
            picture.text(0, y + 19, rung, size=14)
        x = left
        for part, ms in zip(PARTS, parts, strict=True):
            length = ms / longest * (width - left - (120 if wide else 84))
            picture.rect(x, y, length, 28, part)
            if length > 30:
                picture.text(x + length / 2, y + 19, f"{ms:.1f}", PARTS[part], 13, "middle")
            x += length
        words = f"{total:.1f} ms"
        if index % 2:
            words += f"  ÷ {before / total:.1f}"
        picture.text(x + 7, y + 19, words, size=14, bold=True)
        before = total
        y += 36
    return picture.svg(y)


# ------------------------------------------------------------------ docs/loss.svg

# Rows of docs/train.md: a card, its hours and billion tokens; a run, its tokens and its loss.
HOURS = re.compile(r"^\|([^|]*)\|[^|]*\| ([\d.]+) \| [\d,]+ \| \d+ \| ([\d.]+) \|", re.MULTILINE)
RUNS = re.compile(r"^\| \[(.+?)\]\(.*?\) \| [^|]+ \| ([\d.]+) \| ([\d.]+) \|", re.MULTILINE)


def draw_loss(width: int) -> str:
    """llm.c's loss by tokens, how far cards come on it in hours, and how other runs ended."""
    llm_c = json.loads((ROOT / "ladder" / "show" / "references.json").read_text("utf-8"))[-1]
    tokens, losses = np.array(llm_c["points"]).T
    billions = tokens / 1000
    wide = width == WIDE
    picture = Picture(width, "Validation loss by tokens, and how far cards come in hours")
    chart = Chart(picture, 36, width - 8, 30, 310, Scale(0, 10.6), Scale(3.0, 4.4))
    chart.axes("validation loss, nats a token: reported", "billion tokens", 10 if wide else 5)
    shown = losses < chart.up.high
    chart.line(billions[shown], losses[shown], "reported", 2)
    picture.text(*chart.at(0.75, 4.25), "llm.c on FineWeb", "reported", 13)
    page = (ROOT / "docs" / "train.md").read_text("utf-8")
    ends = {}
    card = ""
    for name, hours, end in HOURS.findall(page):
        card = name.strip() or card
        ends.setdefault(float(end), []).append(f"{card.removesuffix(' SXM')}, {hours} h")
    for end, cards in ends.items():
        x, y = chart.at(end, np.interp(end, billions, losses))
        picture.dot(x, y, "reported")
        for index, words in enumerate(cards):
            if end > 0.8 * chart.across.high:  # no room beside it
                picture.text(width, y + 21 + 16 * index, words, size=12.5, align="right")
            else:
                picture.text(x + 8, y - 7 - 16 * index, words, size=12.5)
    for name, end, loss in RUNS.findall(page):
        if name == "llm.c":
            continue
        x, y = chart.at(float(end), float(loss))
        picture.dot(x, y, "reported", hollow=True)
        picture.text(x + 5, y - 9, name, "soft", 12.5, "right")
    return picture.svg(chart.bottom + 40)
