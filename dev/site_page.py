"""The ladder as a page: its story rung by rung, for any GPU, and the climbs that were measured."""

import json
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from blocks import A100, B, climbs_of, lines_changed, measured_marker
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pictures import HEARTS, heart_of

from ladder.commands.roofline import (
    LISTED,
    NO_SCORES,
    PADDED,
    batch_for,
    in_words,
    percents,
    reason,
    reported_shares,
    scores_note,
    speed_change,
    what_fits,
)
from ladder.files import ROOT
from ladder.machine import GPU, find_gpu
from ladder.measure.docstrings import describe, title
from ladder.measure.rates import rates_of, source_of
from ladder.measure.scripts import base_of, branch, number_of, rungs
from ladder.measure.work import AS_BEFORE, LABELS, roofline_ms, work
from ladder.show.diffs import diff_lines
from ladder.show.draw import share
from ladder.show.gather import doc_of, gather
from ladder.show.page import prose
from ladder.show.reported import reported_climb

HERE = Path(__file__).parent
CARD = find_gpu(A100)  # of the reported climb
BATCHES = (1, 2, 4, 8, 16)
PARTS = range(len(LABELS))
TOTAL = len(LABELS)  # its column, after those of the parts
# The primer's pictures, narrow enough to stand beside the diff of their rung.
FIGURES = {
    3: ("formats-narrow.svg", "The bits of FP32, TF32, bfloat16 and float16"),
    5: ("fusion-narrow.svg", "Six kernels with a read and a write each become one"),
    6: ("tiles-narrow.svg", "All scores in memory, or one tile of them at a time on the chip"),
    10: ("adamw-narrow.svg", "Twenty reads and writes of AdamW become seven"),
}
LONG = 10  # changed lines of a rung for the loss; its diff is folded


@dataclass
class Part:
    """A part of a step in a bar."""

    name: str
    style: str
    removed: str | None  # milliseconds, where a bar says what a change removes


@dataclass
class View:
    """What is calculated of a rung on one card at one B, as CSS and words."""

    so_far: list[Part]  # on the scale of the baseline
    after: list[Part]
    each: list[tuple[str, str]]  # the milliseconds of the parts, before and after
    ms: float
    short: str
    now: str  # empty: not calculated
    gain: str
    reason: str = ""
    before: list[Part] | None = None
    gone: str = ""
    first: str = ""
    was: str = ""
    times: str = ""


@dataclass
class StoryRung:
    """A rung of the story."""

    stem: str
    title: str
    about: str  # how many lines it changes, and what it removes
    lines: str
    lead: str  # the first sentence of its change
    rest: str
    why: str
    more: str
    numerics: str
    run: str
    base: str
    diff: list[str] | None
    folded: bool
    heart: str
    figure: str
    alt: str
    reported_ms: int | None = None
    view: View | None = None
    measured: str = ""  # instead of what is calculated


@dataclass
class Story:
    """The section of the page that tells the ladder, rung by rung."""

    shows: ClassVar[str] = "learn"
    id: str
    headline: str
    html: str
    style: str
    script: str


def site_sections() -> list:
    """The story, then the climbs that README.md shows, without what the story has."""
    readme = (ROOT / "README.md").read_text("utf-8")
    climbs = [gather(ROOT / folder) for folder, _, _ in climbs_of(measured_marker(readme))]
    story = tell(climbs)
    for section in climbs:
        for rung in section.rungs:
            rung.doc = None
            rung.source = ""
            rung.logs = {}
    return [story, *climbs]


def tell(climbs: list) -> Story:
    """The rungs in reading order, calculated for the GPU and the B of the reported climb."""
    other = reported_climb()
    numbers = all_numbers()
    card = numbers["cards"][CARD.name]
    rows = rows_of(card)
    shown = []
    for k, path in enumerate(rungs()):
        rung = story_rung(path)
        rung.reported_ms = other["ms"].get(f"{k:02}")
        rung.view = view(k, numbers, card)
        shown.append(rung)
    for_cpus = []
    for path in branch("cpu"):
        rung = story_rung(path)
        rung.measured = measured_gain(path.stem, climbs)
        for_cpus.append(rung)
    story = {
        "headline": "GPT-2 training, made faster one diff at a time",
        "rungs": shown,
        "cpu": for_cpus,
        "reported": other,
        "shares": percents(sorted(reported_shares("any", B)[1])),
        "gpu": CARD.name,
        "B": B,
        "batches": BATCHES,
        "card": card,
        "labels": LABELS,
        "from": short(rows[0][TOTAL]),
        "to": short(rows[-1][TOTAL]),
        "times": f"{rows[0][TOTAL] / rows[-1][TOTAL]:.1f}",
        "numbers": numbers,
        # Nothing in it can end the element that it stands in.
        "json": Markup(json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")),
    }
    template = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template.filters["prose"] = prose
    return Story(
        id="ladder",
        headline=story["headline"],
        html=Markup(template.get_template("story.html").render(story=story)),
        style=HERE.joinpath("story.css").read_text("utf-8"),
        script=HERE.joinpath("story.js").read_text("utf-8"),
    )


def story_rung(path: Path) -> StoryRung:
    """What a script says of itself, and its diff."""
    number = number_of(path)
    fields = describe(path)
    doc = doc_of(path)
    base = base_of(path)
    lines = f"{lines_changed(path)} lines"
    if lines == "+1 lines":
        lines = "one line"
    removes = fields.get("Removes", "")
    for_the_loss = removes.startswith("nothing: ")
    what = removes.removeprefix("nothing: ") if for_the_loss else f"removes {removes}"
    diff = diff_lines(base, path)[2:] if base else None
    changed = [line for line in diff or [] if line[0] in "+-"]
    first, _, rest = doc.change.partition(". ")
    picture, alt = FIGURES.get(number, ("", ""))
    return StoryRung(
        stem=path.stem,
        title=title(path),
        about=f"{lines} · {what}" if base else "",
        lines=lines,
        lead=f"{first.removesuffix('.')}.",
        rest=rest,
        why=doc.why,
        more=doc.more,
        numerics=doc.numerics,
        run=doc.run,
        base=title(base) if base else "",
        diff=diff,
        folded=for_the_loss and len(changed) > LONG,
        heart=heart_of(path) if number in HEARTS else "",
        figure=embedded(picture) if picture else "",
        alt=alt,
    )


def embedded(name: str) -> str:
    """A picture of docs/ as an address that needs no request."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    text = text.replace("#0d1117", "#14171a")  # GitHub's dark ground, and the page's
    return f"data:image/svg+xml;base64,{b64encode(text.encode()).decode()}"


def measured_gain(stem: str, climbs: list) -> str:
    """What a rung gained in the climbs that README.md shows."""
    for section in climbs:
        for rung in section.rungs:
            if rung.stem == stem and rung.gain_text:
                device = section.run["device"]
                return f"Measured here on {device}, over the rung before: {rung.gain_text}"
    return ""


def all_numbers() -> dict:
    """What is calculated for each card and B: story.js shows it, and works nothing out itself."""
    cards = {}
    for gpu in LISTED.values():
        cards[gpu.name] = numbers_of(gpu)
    stems = [*work(1)]
    steps_of = {size: [*work(size).values()] for size in BATCHES}
    lines = {}
    for size, steps in steps_of.items():
        lines[size] = [""] * len(stems)
        for k in range(1, len(stems)):
            before, after = steps[k - 1], steps[k]
            if stems[k] == AS_BEFORE:
                lines[size][k] = f"{PADDED[0].upper()}{PADDED[1:]}."
            elif before["unit"] == after["unit"]:
                lines[size][k] = reason(before, after, CARD, {})
    padded = stems.index(AS_BEFORE)
    reported = {"card": CARD.name, "B": B}
    return {"reported": reported, "padded": padded, "bytes": lines, "cards": cards}


def numbers_of(gpu: GPU) -> dict:
    """A card's words, and of each B and rung the tenths of a millisecond that each part of a step
    and all of it take, and what the rung gains."""
    rates = rates_of(gpu)
    source = source_of(gpu)
    largest, fits = what_fits(gpu)
    ms = {}
    gains = {}
    for size in BATCHES:
        ms[size] = []
        gains[size] = []
        before = None
        for stem, step in work(size).items():
            if stem == AS_BEFORE:
                ms[size].append(ms[size][-1])
                gains[size].append("")
                continue
            parts = roofline_ms(step, rates)
            total = sum(parts)
            ms[size].append(" ".join(f"{10 * value:.0f}" for value in (*parts, total)))
            gains[size].append(speed_change(before, total))
            before = total
    why = {}
    stems = [*work(1)]
    steps = [*work(1).values()]
    for k in range(1, len(steps)):
        if steps[k - 1]["unit"] != steps[k]["unit"]:
            why[k] = f"{reason(steps[k - 1], steps[k], gpu, rates)} ({source})"
    words = f"{in_words(gpu, rates)} (TFLOP/s {source}; the rest by the data sheet)"
    return {
        "on": gpu.name,
        "B": batch_for(gpu),
        "largest": largest,
        "fits": fits,
        "rates": f"{words}; {gpu.note}" if gpu.note else words,
        "why": why,
        "more": {stems.index(NO_SCORES): scores_note(gpu)},
        "ms": ms,
        "gains": gains,
    }


def view(k: int, numbers: dict, card: dict) -> View:
    """A rung on the card and at the B of the reported climb, as story.js shows it on others."""
    rows = rows_of(card)
    after = rows[k]
    before = rows[max(0, k - 1)]
    first = rows[0][TOTAL]
    full = max(before[TOTAL], after[TOTAL])
    known = k != numbers["padded"]
    shown = View(
        so_far=stack(after, first),
        after=stack(after, full),
        each=[(LABELS[part], change(before[part], after[part])) for part in PARTS],
        ms=after[TOTAL],
        short=short(after[TOTAL]) if known else f"as {k - 1:02}",
        now=f"{after[TOTAL]:.1f} ms" if known else "",
        gain=card["gains"][B][k],
    )
    if k:
        saved = before[TOTAL] - after[TOTAL]
        why = numbers["bytes"][B][k]
        if known:
            why = card["why"].get(k) or why + card["more"].get(k, "")
            why = f"{card['on']} at B={B}: {shown.gain}, {why}."
        shown.reason = why
        shown.before = stack(before, full, after)
        shown.gone = f"--w:{max(0, saved) / first:.4f}"
        shown.first = short(first)
        shown.was = short(before[TOTAL])
        shown.times = times(before[TOTAL], after[TOTAL], shown.gain) if known else ""
    return shown


def rows_of(card: dict) -> list[list[float]]:
    """Milliseconds of each rung's parts and of all parts, at the B of the reported climb."""
    return [[int(tenths) / 10 for tenths in row.split()] for row in card["ms"][B]]


def stack(parts: list, full: float, after: list | None = None) -> list[Part]:
    """A bar's parts on a scale of `full` ms; `after` has what a change leaves of them."""
    found = []
    for part in PARTS:
        # Rounded parts may add up to more than the rounded whole.
        width = parts[part] / sum(parts[:TOTAL]) * parts[TOTAL] / full
        style = f"--w:{width:.4f}"
        removed = None
        if after:
            gone = max(0, parts[part] - after[part])
            style += f";--gone:{share(gone / parts[part] if parts[part] else 0)}"
            removed = f"−{short(gone)}" if gone / full > 0.08 else ""  # where it has room
        found.append(Part(LABELS[part], style, removed))
    return found


def change(before: float, after: float) -> str:
    """Milliseconds before and after, if they differ."""
    return f"{after:.1f} ms" if before == after else f"{before:.1f} → {after:.1f} ms"


def short(ms: float) -> str:
    """Whole milliseconds, below ten with a decimal."""
    return f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms"


def times(before: float, after: float, gained: str) -> str:
    """Such as `1.77 times`; below one per cent what is gained."""
    factor = before / after
    if abs(factor - 1) < 0.01:
        return gained
    return f"{factor:.2f} times" if factor < 1.995 else f"{factor:.1f} times"
