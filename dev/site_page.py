"""The ladder as a page: its story rung by rung, for any GPU, and the climbs that were measured."""

from dataclasses import dataclass
from typing import ClassVar

from blocks import A100, B, climbs_of, measured_marker, reported_column

from ladder.commands.roofline import (
    LISTED,
    batch_for,
    gain,
    in_words,
    percents,
    reported_shares,
    what_fits,
)
from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.docstrings import title
from ladder.measure.rates import rates_of, source_of
from ladder.measure.scripts import base_of, rungs
from ladder.measure.work import AS_BEFORE, LABELS, PARTS, counted, roofline_ms, work
from ladder.show.diffs import diff_lines
from ladder.show.gather import Rung, doc_of, gather
from ladder.show.reported import reported_climb

GPU = find_gpu(A100)  # of the reported climb
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class StoryRung(Rung):
    """A rung of the story: calculated, and as it was reported."""

    ms: float = 0.0  # its roofline
    reported: str = ""
    gain: str = ""


@dataclass
class Story:
    """The section of the page that tells the ladder, rung by rung."""

    shows: ClassVar[str] = "learn"
    id: str
    headline: str
    reported: dict  # reported.json
    rungs: list[StoryRung]
    longest: float  # bar, in milliseconds
    times: str
    shares: str
    gpu: str
    B: int
    batches: tuple[int, ...]
    calculator: dict  # for report.js
    card: dict  # of the calculator's cards the one that is chosen


def site_sections() -> list:
    """The story, then the climbs that README.md shows, without what the story has."""
    readme = (ROOT / "README.md").read_text("utf-8")
    sections = [learn_section()]
    for folder, _, _ in climbs_of(measured_marker(readme)):
        section = gather(ROOT / folder)
        for rung in section.rungs:
            rung.doc = None
            rung.source = ""
            rung.logs = {}
        sections.append(section)
    return sections


def learn_section() -> Story:
    """The ten rungs in reading order, calculated for the GPU and the B of the reported climb."""
    other = reported_climb()
    reported = other["ms"]
    scripts = rungs()
    said = reported_column(scripts, other)
    shown = {}
    for number, path in enumerate(scripts):
        base = shown.get(base_of(path))
        roofline, total = roofline_of(path.stem, base)
        ms = sum(roofline.values())
        shown[path] = StoryRung(
            stem=path.stem,
            title=title(path),
            path=path,
            doc=doc_of(path),
            base=base,
            diff=diff_lines(base.path, path)[2:] if base else None,
            roofline=roofline,
            total=total,
            reported_ms=reported.get(f"{number:02}"),
            ms=ms,
            reported=said[number],
            gain=gain(base.ms, ms) if base and path.stem != AS_BEFORE else "",
        )
    first, *_, last = shown.values()
    numbers = calculator()
    return Story(
        id="ladder",
        headline=f"GPT-2, {reported['00'] / reported['10']:.0f} times faster, one diff at a time",
        reported=other,
        rungs=[*shown.values()],
        longest=max(first.ms, first.reported_ms),
        times=f"{first.ms / last.ms:.1f}",
        shares=percents(sorted(reported_shares("any", B)[1])),
        gpu=GPU.name,
        B=B,
        batches=BATCHES,
        calculator=numbers,
        card=numbers["cards"][GPU.name],
    )


def roofline_of(stem: str, base: StoryRung | None) -> tuple[dict[str, float], str]:
    """A rung's roofline, the milliseconds of each part, and their sum in words."""
    if stem == AS_BEFORE:
        return base.roofline, "as 06"
    parts = roofline_ms(work(B)[stem], rates_of(GPU))
    return dict(zip(LABELS, parts, strict=True)), f"{sum(parts):.1f} ms"


def calculator() -> dict:
    """What report.js needs to calculate the same for other GPUs and B."""
    steps = []
    for stem, counts in counted()["cuda"].items():
        known = stem != AS_BEFORE
        steps.append({key: counts[key] for key in counts if key != "code"} if known else None)
    cards = {}
    for gpu in LISTED.values():
        largest, fits = what_fits(gpu)
        rates = rates_of(gpu)
        said = f"{in_words(gpu, rates)} (TFLOP/s {source_of(gpu)}; the rest by the data sheet)"
        words = {"rates": said, "note": gpu.note, "fits": fits}
        cards[gpu.name] = rates | words | {"largest": largest, "B": batch_for(gpu)}
    return {"parts": PARTS, "steps": steps, "cards": cards}
