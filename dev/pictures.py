"""What is made in docs/ from scripts, logs and counts: the pictures, and the page."""

import re
from functools import partial
from pathlib import Path
from textwrap import wrap

import numpy as np
from markupsafe import Markup

from dev import reports
from dev.cards import REPORTED, cards_table, rungs_table
from dev.climbs import climbs_in, machine_of, machines
from dev.fewer_steps import START, curves
from ladder.checkout import ROOT
from ladder.measure.notes import title, title_of
from ladder.measure.rates import CARDS, rates_of
from ladder.measure.rows import base_by_stem
from ladder.measure.scripts import base_of, branch, number_of, rungs
from ladder.measure.training import read_training
from ladder.measure.work import roofline_ms, work
from ladder.show.chart import CURVES, NARROW, WIDE, Axis, Bar, Chart, Picture
from ladder.show.diffs import diff_lines
from ladder.show.gains import draw_climb
from ladder.show.page import Section, both, climb_section, page, table_html
from ladder.show.reported import gains_text, rung_gains
from ladder.show.tables import Cell
from ladder.show.training import draw_loss, training_section
from ladder.show.words import gain_text

# Of the reported climb.
A100 = CARDS["A100 SXM 80GB"]
B = 16
# The heart of a rung's diff. Each must be a `+` line there, where `…` stands for what is left out.
HEARTS = {
    2: 'torch.set_float32_matmul_precision("high")',
    3: "autocast = torch.autocast(device.type, dtype, …)",
    5: "model = torch.compile(model)",
    6: "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    7: "vocab_size: int = 50304",
    10: "torch.optim.AdamW(groups, …, fused=True)",
}
# The colours of a step's parts, in the order of ladder.measure.work, and what they are.
PARTS = {
    "matmuls": "matmuls",
    "attention": "attention",
    "traffic": "memory traffic",
    "optimizer": "optimizer",
}
# Of draw_gains.
CHIP_COLORS = {"data-center": "reported", "RTX": "fourth", "float16": "soft"}
CHIP_CARDS = {
    "data-center": "data-center cards: A100, A30",
    "RTX": "RTX cards: 3050 Ti laptop to 4090",
    "float16": "cards with float16 alone: T4, RTX 2070",
}
TRAINING = ROOT / "logs" / "2026-11-25-amd-epyc-1-thread-train-tiny"  # the run of README.md


def pictures() -> dict[str, str]:
    """Every generated picture of docs/ by its file name, and the page."""
    drawing = {
        "ladder": draw_ladder,
        "gains": draw_gains,
        "learned": draw_learned,
        "step": draw_step,
        "curve": partial(draw_loss, [read_training(TRAINING)]),
        "beyond": draw_beyond,
    }
    for results in climbs_in("README.md", "measured"):
        drawing[f"measured-{results.climb.device_type}"] = partial(draw_climb, results)
    made = {}
    for name, function in drawing.items():
        made[f"{name}.svg"] = function(width=WIDE).svg()
        made[f"{name}-narrow.svg"] = function(width=NARROW).svg()
    made["index.html"] = index()
    return made


def index() -> str:
    """The page: what others reported, and as `ladder report` shows them the climbs that count."""
    sections = [reported_section(), cards_section(), rungs_section()]
    for results in climbs_in("README.md", "measured"):
        sections.append(climb_section(results.climb.folder, with_logs=False))
    sections.append(training_section([TRAINING]))
    return page(sections)


def reported_section() -> Section:
    """How to begin, and the reported climb."""
    times = REPORTED["ms"]["00"] / REPORTED["ms"]["10"]
    words = Markup(
        '<p>In a clone of <a href="../README.md">the repository</a> (<a href="primer.md">new to '
        "GPUs?</a>):</p>"
        "<pre>pip install -e .\npython baseline.py\nladder climb --quick</pre>"
        '<p>Reported: <a href="{url}">{what}</a>, {settings}. {note}</p>'
    ).format(**REPORTED)
    headline = f"GPT-2 training, {times:.0f} times as fast on one A100, one diff at a time"
    return Section("reported", headline, words + both(draw_ladder))


def cards_section() -> Section:
    """The cards of README.md."""
    words = Markup(
        "<p>Rung 10 over the baseline, and a real run with train.py: calculated, as ranges that "
        "hold four fifths of those who reported, and their middle. *: the card's rates are "
        'estimated. <a href="your-card.md">More cards</a></p>'
    )
    return Section("cards", "What your card can gain", words + html_of(cards_table()))


def rungs_section() -> Section:
    """What each rung brought others."""
    words = Markup(
        "<p>Reported: how much faster a step became than with the rung timed before, as the median "
        "of the owners who timed it, their range and number. "
        '<a href="reported.md">Each of them</a></p>'
    )
    parts = words + both(draw_gains) + html_of(rungs_table())
    return Section("rungs", "What each rung brought others", parts)


def html_of(block: str) -> Markup:
    """The table of a block of README.md, with its links from docs/ on."""
    rows = []
    for line in re.findall(r"^\| (.*) \|$", block, re.MULTILINE):
        cells = []
        for text in re.sub(r"[`\\]", "", line).split(" | "):
            link = re.sub(r"\[(.*?)\]\((.*?)\)", r'<a href="../\2">\1</a>', text)
            cells.append(Cell(Markup(link)))
        rows.append(cells)
    ruler = rows.pop(1)
    return table_html(rows, words=[k for k, cell in enumerate(ruler) if cell.text == "---"])


def draw_ladder(width: int) -> Picture:
    """The reported milliseconds of each rung, and the heart of its diff."""
    picture = Picture(
        width, f"Milliseconds of a step, reported by {REPORTED['who']}, and the diffs"
    )
    before = None
    for number, ms in REPORTED["ms"].items():
        path = rungs()[int(number)]
        part = ms / REPORTED["ms"]["00"]
        bar = Bar(title(path), [(part, "reported", "")], f"{ms} ms")
        if before:
            bar.right = gain_text(before / ms)
        picture.bars([bar], 0.8)
        if before:
            draw_heart(picture, f" + {heart_of(path)}", part)
        before = ms
    return picture


def draw_heart(picture: Picture, code: str, part: float):
    """A `+` line of a diff on its ground, behind the bar above; where it is narrow, below it, and
    on two lines if it needs them."""
    letter = 7.5 if picture.wide else 6.8  # pixels
    lines = wrap(code, int(picture.width / letter) - 1, subsequent_indent="     ")
    x, y = 0, picture.y + 6
    if picture.wide:
        x, y = 228 + part * 538, picture.y - 20
    else:
        picture.y += 6 + 18 * len(lines)
    longest = max(map(len, lines))
    picture.rect(x, y - 11, (longest + 1) * letter, 4 + 18 * len(lines), "added")
    for line in lines:
        picture.text(x, y + 4, line, "added-ink mono", letter / 0.602)
        y += 18


def heart_of(path: Path) -> str:
    """The heart of a rung's diff. Raises ValueError if the diff has no such line."""
    heart = HEARTS[number_of(path)]
    for line in diff_lines(base_of(path), path)[2:]:
        if line.startswith("+") and all(words in line for words in heart.split("…")):
            return heart
    raise ValueError(f"{path.stem} adds no line with {heart}: mend HEARTS")


# ------------------------------------------------------------------ gains


def draw_gains(width: int) -> Picture:
    """What each rung gained on each card that somebody timed, by kind of chip."""
    picture = Picture(width, "Reported: the gain of each rung over the one timed before, by owner")
    labels = {}
    bars = []
    for chip, color in CHIP_COLORS.items():
        owners = {who for gains in reports.rung_gains(chip).values() for who in gains}
        labels[color] = f"{CHIP_CARDS[chip]} ({len(owners)} owners)"
    for path in rungs():
        dots = [rung_gains(chip)[path.stem] for chip in CHIP_COLORS]
        if sum(map(len, dots)) > 1:  # more than one owner timed it
            medians = [gains_text(gains)[0] for gains in dots[:2]]
            bars.append(Bar(title(path), dots=dots, right=" · ".join(medians)))
    picture.legend(labels)
    picture.say("A dot: what one owner reported. Ticks: the median, at the right for the first two")
    picture.bars(bars, 0, "tok/s vs. the rung timed before", colors=tuple(CHIP_COLORS.values()))
    return picture


def draw_learned(width: int) -> Picture:
    """What each rung gained over the one it is built on, by machine that was measured here."""
    picture = Picture(width, "Measured here: the gain of each rung over the one before, by machine")
    found = machines()
    labels = {}
    bars = {}  # by title
    for k, (machine, color) in enumerate(zip(found, CURVES, strict=False)):
        name = re.sub(r" *\(.*?\)| Processor| @.*?(?=,)", "", machine_of(machine.top.log.run))
        rate = machine.climb.matmul_flops / 1e12
        name = name.removesuffix(", T=256")
        labels[color] = f"{name}: {rate:.2g} TFLOP/s"
        for row in machine.ran.values():
            if row.gain and row.base.stem == base_by_stem()[row.stem]:
                bar = bars.setdefault(row.title, Bar(row.title, marks=[None] * len(found)))
                bar.marks[k] = row.gain
    picture.legend(labels)
    picture.say("Dots: what a rung gains, filled if significant, with the interval")
    picture.bars([*bars.values()], 0, "tok/s vs. previous", colors=CURVES)
    return picture


# ------------------------------------------------------------------ parts of a step


def draw_step(width: int) -> Picture:
    """The parts of a step after the rungs that shorten it most: what 02 leaves is drawn wider."""
    picture = Picture(width, "What each rung removes from a training step, in milliseconds")
    picture.say(f"Milliseconds a step, calculated for one {A100.name}, B={B}")
    picture.legend(PARTS)
    picture.bars(step_bars("baseline", "02_tf32"), 0.82)
    picture.say("02 to 10, drawn wider")
    later = ("03_bf16_autocast", "05_torch_compile", "06_flash_attention", "10_fused_adamw")
    picture.bars(step_bars("02_tf32", *later), 0.82)
    return picture


def step_bars(*stems: str) -> list[Bar]:
    """A bar for each of these rungs, its parts in milliseconds; the first is the longest."""
    bars = []
    longest = before = None
    for stem in stems:
        parts = roofline_ms(work(B)[stem], rates_of(A100))
        total = sum(parts)
        longest = longest or total
        bar = Bar(title_of(stem), end=f"{total:.0f} ms")
        for part, ms in zip(PARTS, parts, strict=True):
            bar.pieces.append((ms / longest, part, f"{ms:.0f}"))
        if before:
            bar.right = gain_text(before / total)
        bars.append(bar)
        before = total
    return bars


# ------------------------------------------------------------------ curves


def draw_beyond(width: int) -> Picture:
    """The loss over the steps of rung 10 and of those of beyond/, a chart for each model."""
    picture = Picture(width, "Loss over the steps of rung 10 and of each rung of beyond/")
    picture.say("Dots: where a rung comes down to the loss at which 10 ends. Bands: all rounds")
    for results in climbs_in("beyond/README.md", "staircase"):
        run = results.log.run
        picture.say(f"{run['model']}, {run['B']} x {run['T']} tokens a step, {run['data']}")
        draw_staircase(picture, results.rows)
    if not picture.wide:  # there only numbers are at the curves
        names = [title_of(START), *map(title, branch("beyond"))]
        picture.say(", ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names))
    return picture


def draw_staircase(picture: Picture, rows: list):
    """The losses of one climb, as far down as they end. Words have the colour of their curve."""
    found = curves(rows)
    ends = {stem: curve.mean[-1] for stem, curve in found.items()}
    lowest = min(curve.low.min() for curve in found.values())
    up = Axis(lowest, 2 * max(ends.values()) - lowest, "loss, nats a token")
    across = Axis(0, found[START].steps[-1], "steps")
    chart = Chart(picture, across, up, height=380, margin=165 if picture.wide else 46)
    colors = {stem: CURVES[1 + int(stem[:2]) % 4] for stem in found}  # one in both charts
    colors |= {START: "ink", [*found][-1]: "measured"}
    for stem, curve in found.items():
        color = colors[stem]
        shown = curve.part_below(up.high)
        edge = [*zip(shown.steps, np.minimum(shown.high, up.high), strict=True)]
        edge += [*zip(shown.steps, shown.low, strict=True)][::-1]
        points = " ".join(f"{across.at(x):.0f},{up.at(y):.0f}" for x, y in edge)
        band = f'<polygon class="{color}" points="{points}" fill-opacity="0.1"/>'
        picture.shapes.append(band)
        thick = 2 if color in ("ink", "measured") else 1
        chart.line(shown.steps, shown.mean, color, thick, "6 3" if stem == START else "none")
    level = found[START].mean[-1]
    chart.line([across.low, across.high], [level, level], "soft", 1, "2 3")
    picture.text(across.start + 4, up.at(level) - 6, "10 ends", "soft")
    for stem, curve in found.items():
        step = curve.step_at(level)
        if step < np.inf and stem != START:
            picture.dot(across.at(step), up.at(level), colors[stem])
    y = up.end
    for stem in sorted(ends, key=ends.get, reverse=True):
        end = up.at(ends[stem])
        y = max(y + 17, end)
        picture.line([(across.end + 2, end), (across.end + 16, y)], colors[stem])
        words = title_of(stem) if picture.wide else stem[:2]
        picture.text(across.end + 20, y + 4, words, colors[stem])
