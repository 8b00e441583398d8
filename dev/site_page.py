"""The ladder as a page: its story rung by rung, for any GPU, and the climbs that were measured."""

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from blocks import A100, B, beyond_climbs, lines_changed, measured_climbs, part_of, setting_of
from fewer_steps import TUNED, shares
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pictures import HEARTS, heart_of

from ladder.commands.roofline import (
    LISTED,
    batch_for,
    in_words,
    percents,
    reasons,
    reported_shares,
    what_fits,
)
from ladder.files import ROOT
from ladder.machine import GPU, find_gpu
from ladder.measure.docstrings import describe, title
from ladder.measure.rates import rates_of, source_of
from ladder.measure.rows import Row
from ladder.measure.scripts import base_of, branch, number_of, rungs
from ladder.measure.work import AS_BEFORE, LABELS, roofline_ms, work
from ladder.show.diffs import diff_lines
from ladder.show.gather import doc_of, gather
from ladder.show.page import prose
from ladder.show.reported import reported_climb

HERE = Path(__file__).parent
CARD = find_gpu(A100).name  # of the reported climb
BATCHES = (1, 2, 4, 8, 16)
TOTAL = len(LABELS)  # its place in a row, after those of the parts
# The primer's pictures that stand beside the diff of their rung.
FIGURES = {3: "formats", 5: "fusion", 6: "tiles", 10: "adamw"}


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
    climbs = [gather(ROOT / folder) for folder, _, _ in measured_climbs()]
    story = tell(climbs)
    for section in climbs:
        for rung in section.rungs:
            rung.doc = None
            rung.source = ""
            rung.logs = {}
    return [story, *climbs]


def tell(climbs: list) -> Story:
    """The rungs in reading order. Without script the page has the times of the reported climb's GPU
    alone, and no bars."""
    other = reported_climb()
    numbers = all_numbers()
    shown = []
    for k, (path, row) in enumerate(zip(rungs(), numbers["cards"][CARD]["rows"][B], strict=True)):
        rung = story_rung(path)
        rung["reported_ms"] = other["ms"].get(f"{k:02}")
        rung["ms"] = f"{row[TOTAL] / 10:.0f} ms"
        rung["gain"] = row[TOTAL + 1]
        shown.append(rung)
    for_cpus = []
    for path in branch("cpu"):
        for_cpus.append(story_rung(path) | {"measured": measured_gain(path.stem, climbs)})
    for_steps = [story_rung(path) | {"measured": ""} for path in branch("beyond")]
    setting = ""
    for _, _, rows in beyond_climbs():
        add_steps(for_steps, rows)
        setting = setting_of(rows)
    template = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template.filters["prose"] = prose
    html = template.get_template("story.html").render(
        rungs=shown,
        cpu=for_cpus,
        beyond=for_steps,
        setting=setting,
        reported=other,
        shares=percents(sorted(reported_shares("any", B)[1])),
        cards=numbers["cards"],
        batches=BATCHES,
        labels=LABELS,
        chosen=(CARD, B),
        # Nothing in it can end the element that it stands in.
        json=Markup(json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")),
    )
    return Story(
        id="ladder",
        headline="GPT-2 training, made faster one diff at a time",
        html=Markup(html),
        style=HERE.joinpath("story.css").read_text("utf-8"),
        script=HERE.joinpath("story.js").read_text("utf-8"),
    )


def story_rung(path: Path) -> dict:
    """What story.html shows of a script: what it says of itself, and its diff."""
    number = number_of(path)
    base = base_of(path)
    removes = describe(path).get("Removes", "")
    what = f"removes {removes}".removeprefix("removes nothing: ")
    doc = doc_of(path)
    sentences = re.split(r"(?<=\.) (?=[A-Z])", doc.why)
    return {
        "stem": path.stem,
        "title": title(path),
        "base": title(base) if base else "",
        "about": f"diff {lines_changed(path)} · {what}" if base else "",
        "doc": doc,
        "why": " ".join(sentences[:3]),
        "more": " ".join(sentences[3:]),
        "diff": diff_lines(base, path)[2:] if base else [],
        "heart": heart_of(path) if number in HEARTS else "",
        "figure": embedded(FIGURES[number]) if number in FIGURES else "",
    }


def embedded(name: str) -> str:
    """A narrow picture of docs/ as an address that needs no request."""
    text = (ROOT / "docs" / f"{name}-narrow.svg").read_text("utf-8")
    text = text.replace("#0d1117", "#14171a")  # GitHub's dark ground, and the page's
    return f"data:image/svg+xml;base64,{b64encode(text.encode()).decode()}"


def measured_gain(stem: str, climbs: list) -> str:
    """What a rung gained in the climbs that README.md shows."""
    for section in climbs:
        for rung in section.rungs:
            if rung.row.name == stem and rung.gain_text:
                device = section.run["device"]
                return f"Measured here on {device}, over the rung before: {rung.gain_text}"
    return ""


def add_steps(rungs: list[dict], rows: list[Row]):
    """Say of each of these in which share of 21's steps it comes down to where 21 ends."""
    found = shares(rows, TUNED)
    for rung in rungs:
        share = found.get(rung["stem"])
        if share:
            rung["steps"] = share.value
            rung["measured"] = f"{part_of(share)} of 21's steps to the loss at which 21 ends"
        elif rung["stem"] in found:
            rung["measured"] = "Does not come down to the loss at which 21 ends"


def all_numbers() -> dict:
    """What is calculated for each card and B: story.js shows it, and works nothing out itself."""
    why = {"": 0}  # words, and their number in a row
    cards = {gpu.name: numbers_of(gpu, why) for gpu in LISTED.values()}
    return {"reported": [CARD, f"{B}"], "why": [*why], "cards": cards}


def numbers_of(gpu: GPU, why: dict[str, int]) -> dict:
    """A card's words, and for each B a row per rung: the tenths of a millisecond that each part of
    a step and all of it take, what the rung gains, and the number of the reason in `why`."""
    rates = rates_of(gpu)
    largest, fits = what_fits(gpu)
    rows = {}
    for size in BATCHES:
        steps = work(size)
        lines = reasons(steps, gpu, rates)
        rows[size] = []
        for stem, step in steps.items():
            if stem != AS_BEFORE:
                parts = roofline_ms(step, rates)
                tenths = [round(10 * ms) for ms in (*parts, sum(parts))]
            gain, _, reason = lines.get(stem, "").partition(": ")[2].partition(", ")
            rows[size].append([*tenths, gain, why.setdefault(reason, len(why))])
    words = f"{in_words(gpu, rates)} (TFLOP/s {source_of(gpu)}; the rest by the data sheet)"
    return {
        "B": batch_for(gpu),
        "largest": largest,
        "fits": fits,
        "rates": f"{words}; {gpu.note}" if gpu.note else words,
        "rows": rows,
    }
