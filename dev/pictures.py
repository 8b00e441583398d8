"""The pictures in docs/ that are made from scripts, logs and counts."""

import json
import math
import re
from pathlib import Path

import numpy as np
import primer_pictures
from blocks import (
    A100,
    beyond_climbs,
    machine_of,
    machines,
    measured_climbs,
    reported_rungs,
)
from fewer_steps import START, TUNED, curves
from svg import NARROW, PARTS, WIDE, Axis, Picture, Row

from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.docstrings import title
from ladder.measure.rates import rates_of
from ladder.measure.rows import median_ms, read_climb
from ladder.measure.scripts import base_of, number_of
from ladder.measure.stats import Estimate
from ladder.measure.work import LABELS, batch_to_compare, roofline_ms, work
from ladder.show.diffs import diff_lines
from ladder.show.draw import Scale
from ladder.show.reported import reported_climb, reported_gpus, share_of
from ladder.show.tables import percent, title_of
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
    draw = {"ladder": draw_ladder, "curve": draw_curve, "cards": draw_cards}
    draw |= {"learned": draw_learned, "rounds": draw_rounds}
    draw |= {"two-cards": draw_two_cards, "loss": draw_loss, "beta2": draw_beta2}
    draw |= primer_pictures.DRAW
    for _, climb, rows in measured_climbs():
        draw[f"measured-{climb.device_type}"] = lambda width, rows=rows: draw_climb(rows, width)
    for _, _, rows in beyond_climbs():
        draw["beyond"] = lambda width, rows=rows: draw_beyond(rows, width)
    made = {}
    for name, function in draw.items():
        made[f"{name}.svg"] = function(WIDE).svg()
        made[f"{name}-narrow.svg"] = function(NARROW).svg()
    return made


def draw_ladder(width: int) -> Picture:
    """The reported milliseconds of each rung, and the heart of its diff."""
    other = reported_climb()
    picture = Picture(width, f"Milliseconds of a step, reported by {other['who']}, and the diffs")
    picture.say(f"One training step of GPT-2 (124M) on one A100: reported by {other['who']}")
    rows = []
    first = before = None
    for path in reported_rungs():
        ms = other["ms"][f"{number_of(path):02}"]
        first = first or ms
        row = Row(title(path), [(ms / first, "reported", "")], f"{ms} ms")
        if before:
            row.code = heart_of(path)
            row.right = primer_pictures.faster(before, ms)
        rows.append(row)
        before = ms
    picture.rows(rows, bars=0.8)
    return picture


def heart_of(path: Path) -> str:
    """The heart of a rung's diff. Raises ValueError if the diff has no such line."""
    heart = HEARTS[number_of(path)]
    for line in diff_lines(base_of(path), path)[2:]:
        if line.startswith("+") and all(words in line for words in heart.split("…")):
            return heart
    raise ValueError(f"{path.stem} adds no line with {heart}: mend HEARTS in dev/pictures.py")


# ------------------------------------------------------------------ gains


def draw_climb(rows: list, width: int) -> Picture:
    """The milliseconds of each rung, and what it gains over the one before with its interval."""
    rows = [row for row in rows if row.logs]
    picture = Picture(width, "Measured here: milliseconds a step, and gains over the rung before")
    picture.say("Measured here: milliseconds a step, and the gain over the rung before")
    shown = []
    for row in rows:
        bar = [(row.ms / rows[0].ms, "measured", "")]
        line = Row(title_of(row), bar, f"{row.ms:,.0f}", marks=[row.gain])
        line.right = percent(row.gain) if row.gain else ""
        shown.append(line)
    heading = "gain, 95 % interval, logarithmic"
    end = 0.7 if picture.wide else 0.98
    axis = gain_axis(heading, 0.4, end, [row.gain for row in rows if row.gain])
    picture.rows(shown, bars=0.28, axes=[axis])
    return picture


def draw_learned(width: int) -> Picture:
    """What each rung gained on each machine that was measured here."""
    found = machines()
    picture = Picture(width, "Measured here: the gain of each rung over the one before, by machine")
    gains = []
    marks = {}  # of each rung, on each machine
    for machine in found:
        for row in machine.ran.values():
            if row.gain:
                gains.append(row.gain)
                marks.setdefault(title_of(row), {})[machine.folder] = row.gain
    axes = []
    for k, machine in enumerate(found):
        label = re.sub(r"\(.*?\)| Processor| @.*?(?=,)", "", machine_of([*machine.ran.values()]))
        rate = machine.climb.rate("peak_flops") / 1e12
        heading = f"{label.replace(' ,', ',').removesuffix(', T=256')}: {rate:.2g} TFLOP/s"
        start = 0.04 + k / len(found)
        axes.append(gain_axis(heading, start, start + 0.26, gains, ticks=(-50, 0, 100)))
    rows = []
    for name, by_machine in marks.items():
        rows.append(Row(name, marks=[by_machine.get(machine.folder) for machine in found]))
    picture.rows(rows, axes=axes)
    return picture


def draw_rounds(width: int) -> Picture:
    """How the rounds of a climb become a gain with an interval: its last two rungs."""
    *_, (_, _, measured) = measured_climbs()
    before, after = measured[-2:]
    picture = Picture(width, "Six rounds of two rungs, the gain of each round, and its interval")
    old, new = title_of(before), title_of(after)
    picture.say(f"Milliseconds a step of {old} and {new}, and what {new} gains")
    rows = []
    gains = [after.gain]
    for k in sorted(after.logs):
        slow, fast = median_ms(before.logs[k]), median_ms(after.logs[k])
        gain = Estimate(slow / fast, None, None, 1, significant=True)
        gains.append(gain)
        rows.append(Row(f"round {k}", end=f"{slow:,.0f} → {fast:,.0f}", marks=[gain]))
    rows.append(Row("mean", marks=[after.gain], right=percent(after.gain)))
    end = 0.72 if picture.wide else 0.98
    axis = gain_axis("gain, logarithmic", 0.36, end, gains, ticks=(0, 5, 10, 15))
    picture.rows(rows, axes=[axis])
    return picture


def gain_axis(heading: str, start: float, end: float, gains: list, ticks=(-50, 0, 50, 100)) -> Axis:
    """A logarithmic axis of gains in speed that holds these and 0 %; ticks in per cent."""
    low = min(1.0, *(gain.low or gain.value for gain in gains))
    high = max(gain.high or gain.value for gain in gains)
    shown = {}
    for tick in ticks:
        ratio = 1 + tick / 100
        if low <= ratio <= high:
            shown[ratio] = f"{tick} %".replace("-", "−")
    return Axis(heading, start, end, Scale(math.log(low), math.log(high)), shown, math.log)


# ------------------------------------------------------------------ cards


def draw_cards(width: int) -> Picture:
    """Twenty GPUs: the reported tokens per second, and which share of the roofline that is."""
    fastest = {row["gpu"]: row for row in sorted(reported_gpus(), key=lambda row: row["tok_per_s"])}
    rows = [*fastest.values()][::-1]
    highest = max(row["tok_per_s"] for row in rows)
    picture = Picture(width, "Twenty GPUs: tokens per second, reported, and share of the roofline")
    picture.say(
        "Thousand tokens a second at B: reported. Share of the roofline: calculated, ms of ms"
    )
    shown = []
    for row in rows:
        rate = row["tok_per_s"]
        share = share_of(row)
        ms = row["ms_a_step"]
        line = Row(row["gpu"], [(rate / highest, "reported", "")])
        line.end = f"{rate / 1000:.3g}, B={row['B']:.0f}"
        line.marks = [Estimate(share, None, None, 1, significant=True)]
        line.right = f"{share * 100:.0f} %: {ms * share:,.0f} of {ms:,.0f}"
        shown.append(line)
    ticks = {0: "0 %", 0.5: "50 %", 1: "100 %"}
    end = 0.7 if picture.wide else 0.94
    axis = Axis("share of the roofline", 0.46, end, Scale(0, 1), ticks)
    picture.rows(shown, bars=0.28 if picture.wide else 0.2, axes=[axis], color="reported")
    return picture


def draw_two_cards(width: int) -> Picture:
    """Why an A100 gains more than an RTX 4090: the parts of a step, before and after."""
    picture = Picture(width, "The parts of a step on an A100 and on an RTX 4090, calculated")
    picture.say("Calculated: milliseconds for 1024 tokens")
    picture.legend(dict(zip(PARTS, LABELS, strict=True)))
    longest = None
    for name in (A100, "NVIDIA GeForce RTX 4090"):
        gpu = find_gpu(name)
        B = batch_to_compare(gpu.memory)
        steps = {}
        for stem, step in work(B).items():
            steps[stem] = [ms / B for ms in roofline_ms(step, rates_of(gpu))]
        longest = longest or sum(steps["baseline"])
        picture.heading(f"{gpu.name}, B={B}")
        stems = ("baseline", "10_fused_adamw")
        picture.rows(primer_pictures.step_rows(steps, stems, longest, 1), bars=0.85)
    return picture


# ------------------------------------------------------------------ curves


def draw_curve(width: int) -> Picture:
    """The losses of the one training run that is published."""
    folder = ROOT / "logs" / "2026-11-25-amd-epyc-1-thread-train-tiny"
    run = gather_run(folder, read_logs(find_runs(folder)[folder])[0])
    axis = axes_of([run])[0]
    loss = panel([run], [], axis, "loss")
    picture = Picture(width, "Loss of a small model while it trains, measured here")
    labels = {"faint": "each step", "measured": "running mean of the steps"}
    picture.legend(labels | {"ink": "validation, on held-out text"})
    chart = Chart(picture, loss.across, Scale(loss.up.low, loss.highest))
    chart.axes("loss, nats a token", axis.name)
    curves = {name: (x, y) for name, _, x, y in loss.lines}
    chart.line(*curves["thin"], "faint", 1)
    chart.line(*curves["mean"], "measured", 2)
    chart.line(*curves["val"], "ink", 1.5)
    for x, y in zip(*curves["val"], strict=True):
        picture.dot(*chart.at(x, y), "ink", radius=2)
    for mark in loss.marks:
        chart.line([mark, mark], [chart.up.low, chart.up.high], "soft", 1, "4 3")
        x, y = chart.at(mark, chart.up.high)
        picture.text(x + 5, y + 12, "stopped and resumed", "soft")
    return picture


class Chart:
    """Two axes on a picture, below what is drawn there."""

    def __init__(self, picture: Picture, across: Scale, up: Scale, height=240, margin=8):
        self.picture = picture
        self.across = across
        self.up = up
        self.top = picture.y + 30
        self.bottom = self.top + height
        self.right = picture.width - margin
        picture.y = self.bottom + 38

    def at(self, x, y) -> tuple[float, float]:
        """Where a point stands."""
        left = 36
        height = self.bottom - self.top
        return left + self.across.at(x) * (self.right - left), self.bottom - self.up.at(y) * height

    def line(self, xs, ys, color: str, thick: float, dashes="none"):
        """A curve."""
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True)]
        self.picture.line(points, color, thick, dashes)

    def area(self, edge, color: str):
        """What lies inside of an edge."""
        points = " ".join(f"{x:.0f},{y:.0f}" for x, y in (self.at(*point) for point in edge))
        self.picture.add("polygon", color, points=points, fill_opacity="0.1")

    def axes(self, up: str, across: str):
        """The lines, numbers and names of both axes."""
        low, high = self.across.low, self.across.high
        for value in self.up.round_values(int(self.bottom - self.top) // 48):
            self.line([low, high], [value, value], "grid", 1)
            x, y = self.at(low, value)
            self.picture.text(x - 7, y + 4, f"{value:,g}", "soft", 12.0, "end")
        for value in self.across.round_values(8 if self.picture.wide else 4):
            x, y = self.at(value, self.up.low)
            self.picture.text(x, y + 17, f"{value:,g}", "soft", 12.0, "middle")
        self.picture.text(0, self.top - 12, up, "soft")
        self.picture.text(self.at(high, 0)[0], self.bottom + 34, across, "soft", anchor="end")


# Rows of docs/train.md: a card, its hours and billion tokens; a run, its tokens and its loss.
HOURS = re.compile(r"^\|([^|]*)\|[^|]*\| ([\d.]+) \| [\d,]+ \| \d+ \| ([\d.]+) \|", re.MULTILINE)
RUNS = re.compile(r"^\| \[(.+?)\]\(.*?\) \| [^|]+ \| ([\d.]+) \| ([\d.]+) \|", re.MULTILINE)


def draw_loss(width: int) -> Picture:
    """llm.c's loss by tokens, how far cards come on it in hours, and how other runs ended."""
    llm_c = json.loads((ROOT / "ladder" / "show" / "references.json").read_text("utf-8"))[-1]
    tokens, losses = np.array(llm_c["points"]).T
    billions = tokens / 1000
    picture = Picture(width, "Validation loss by tokens, and how far cards come in hours")
    picture.legend({"reported": "llm.c on FineWeb, reported; on it the hours of one card"})
    chart = Chart(picture, Scale(0, 10.6), Scale(2.9, 4.4))
    chart.axes("validation loss, nats a token", "billion tokens")
    shown = losses < chart.up.high
    chart.line(billions[shown], losses[shown], "reported", 2)
    page = (ROOT / "docs" / "train.md").read_text("utf-8")
    card = ""
    above = {}  # how many words each point has
    for name, hours, end in HOURS.findall(page):
        card = name.strip().removesuffix(" SXM") or card
        x, y = chart.at(float(end), np.interp(float(end), billions, losses))
        picture.dot(x, y, "reported")
        above[end] = above.get(end, 0) + 1
        words = f"{card}, {hours} h"
        if float(end) > 9:  # no room beside it
            picture.text(width, y + 5 + 16 * above[end], words, anchor="end")
        else:
            picture.text(x + 8, y - 7, words)
    for name, end, loss in RUNS.findall(page)[1:]:
        x, y = chart.at(float(end), float(loss))
        picture.dot(x, y, "reported", hollow=True)
        picture.text(x - 8, y + 9, name, "soft", anchor="end")  # clear of the cards' words
    return picture


# Climbs of 08 and of 08 with a beta2 of 0.999, by tokens a step.
BETA2 = {
    256: "2026-11-26-amd-epyc-1-thread-climb-2",
    1024: "2026-11-26-amd-epyc-1-thread-climb-3",
}
GPT3_BATCH = 2**19  # tokens


def half_life(beta2: float, batch: int) -> float:
    """In how many tokens half of what the second moments hold is forgotten."""
    return batch * math.log(0.5) / math.log(beta2)


def draw_beta2(width: int) -> Picture:
    """The half-life of beta2 by tokens a step, GPT-3's, and what 0.95 costs where we measured."""
    picture = Picture(width, "Half-life of beta2 in tokens, by the tokens of a step")
    picture.legend({"measured": "measured here, tiny", "reported": "GPT-3's setting"})
    chart = Chart(picture, Scale(7, 20), Scale(2.5, 8.8))  # powers of 2, powers of 10
    for power, words in ((3, "1 k"), (5, "100 k"), (7, "10 M")):
        chart.line([7, 20], [power, power], "grid", 1)
        x, y = chart.at(7, power)
        picture.text(x - 5, y + 4, words, "soft", 12.0, "end")
    for power in (8, 10, 14, 19):
        x, y = chart.at(power, chart.up.low)
        picture.text(x, y + 17, f"{2**power:,}", "soft", 12.0, "middle")
    picture.text(0, chart.top - 12, "tokens until β2 has forgotten half", "soft")
    picture.text(width, chart.bottom + 34, "tokens a step", "soft", anchor="end")
    fixed = math.log10(half_life(0.95, GPT3_BATCH))
    chart.line([7, 20], [fixed, fixed], "reported", 1.5, "4 3")
    for beta2 in (0.95, 0.999):
        low, high = (math.log10(half_life(beta2, 2**power)) for power in (7, 20))
        chart.line([7, 20], [low, high], "ink", 1.5)
        x, y = chart.at(16, low + 9 / 13 * (high - low))
        picture.text(x, y - 10, f"β2 {beta2}", anchor="end", weight=600)
        for batch in BETA2:
            dot = chart.at(math.log2(batch), math.log10(half_life(beta2, batch)))
            picture.dot(*dot, "measured")
    for batch, folder in BETA2.items():
        gain = read_climb(ROOT / "logs" / folder)[1][1].loss_change
        x, y = chart.at(math.log2(batch), math.log10(half_life(0.95, batch)))
        words = f"+{-gain.value:.3f} ({-gain.high:.3f} to {-gain.low:.3f})"
        picture.text(x + 6, y + 16, words)
    picture.dot(*chart.at(19, fixed), "reported")
    return picture


def draw_beyond(rows: list, width: int) -> Picture:
    """The loss over the steps of rung 10 and of those of beyond/, as far down as they end."""
    found = curves(rows)
    ends = {stem: curve.mean[-1] for stem, curve in found.items()}
    lowest = min(curve.low.min() for curve in found.values())
    up = Scale(lowest, 2 * max(ends.values()) - lowest)
    across = Scale(0, found[START].steps[-1])
    picture = Picture(width, "Loss over the steps of rung 10 and of each rung of beyond/")
    chart = Chart(picture, across, up, height=420, margin=165 if picture.wide else 46)
    chart.axes("loss, nats a token", "steps")
    top = [*found][-1]
    styles = {START: ("ink", 2, "6 3"), TUNED: ("ink", 2, "none"), top: ("measured", 2.5, "none")}
    for stem, curve in found.items():
        color, thick, dashes = styles.get(stem, ("soft", 1, "none"))
        shown = curve.part_below(up.high)
        edge = [*zip(shown.steps, np.minimum(shown.high, up.high), strict=True)]
        edge += [*zip(shown.steps, shown.low, strict=True)][::-1]
        chart.area(edge, color)
        on = shown.mean <= up.high
        chart.line(shown.steps[on], shown.mean[on], color, thick, dashes)
    for target in (START, TUNED):
        level = ends[target]
        chart.line([across.low, across.high], [level, level], "soft", 1, "2 3")
        x, y = chart.at(across.low, level)
        picture.text(x + 4, y - 6, f"{target[:2]} ends", "soft")
        for stem, curve in found.items():
            step = curve.step_at(level)
            if step and stem != target:
                color = styles.get(stem, ("soft",))[0]
                picture.dot(*chart.at(step, level), color, radius=3)
    names = {row.stem: title_of(row) for row in rows}
    if not picture.wide:
        names = {stem: name[:2] for stem, name in names.items()}
    end_labels(chart, ends, names, styles)
    return picture


def end_labels(chart: Chart, ends: dict[str, float], names: dict[str, str], styles: dict):
    """The name of each curve beside its end, from the highest down, without overlap."""
    apart = 17  # pixels
    y = chart.top
    stems = sorted(ends, key=ends.get, reverse=True)
    for k, stem in enumerate(stems):
        x, end = chart.at(chart.across.high, ends[stem])
        lowest = chart.bottom - apart * (len(stems) - 1 - k)  # room for those below
        y = min(max(y + apart, end), lowest)
        chart.picture.line([(x + 2, end), (x + 16, y)], "soft")
        weight = 600 if stem in styles else 400
        color = styles.get(stem, ("soft",))[0]
        chart.picture.text(x + 20, y + 4, names[stem], color, weight=weight)
