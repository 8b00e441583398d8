"""The ladder as a page: its story rung by rung, for any GPU, and the climbs that were measured."""

from blocks import A100, B, climbs_of, reported_column, rungs_marker

from ladder.commands.roofline import (
    LISTED,
    percents,
    rates,
    reported_shares,
    speed_change,
    what_fits,
)
from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.docstrings import describe, title
from ladder.measure.scripts import base_of, rungs
from ladder.measure.work import AS_BEFORE, LABELS, PARTS, counted, roofline_ms, work
from ladder.show.diffs import diff_lines
from ladder.show.gather import gather
from ladder.show.reported import reported_climb

GPU = find_gpu(A100)  # of the reported climb
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def site_sections() -> list[dict]:
    """The story, then the climbs that README.md shows, without what the story has."""
    readme = (ROOT / "README.md").read_text("utf-8")
    sections = [learn_section()]
    for folder, _, _ in climbs_of(rungs_marker(readme)):
        section = gather(ROOT / folder)
        section["without"] = None
        for rung in section["rungs"]:
            rung |= {"doc": {}, "source": "", "logs": {}}
        sections.append(section)
    return sections


def learn_section() -> dict:
    """The ten rungs in reading order, calculated for the GPU and the B of the reported climb."""
    other = reported_climb()
    scripts = rungs()
    said = reported_column(scripts, other)
    shown = {}
    for number, path in enumerate(scripts):
        base = shown.get(base_of(path))
        shown[path] = calculated_times(path.stem, base) | {
            "stem": path.stem,
            "title": title(path),
            "doc": describe(path),
            "reported": said[number],
            "reported_ms": other["ms"].get(f"{number:02}"),
            "base": base,
            "path": path,
            "diff": diff_lines(base["path"], path)[2:] if base else None,
        }
    first, *_, last = shown.values()
    return {
        "id": "ladder",
        "shows": "learn",
        "reported": other,
        "rungs": [*shown.values()],
        "longest": max(first["ms"], first["reported_ms"]),
        "times": first["ms"] / last["ms"],
        "shares": percents(sorted(reported_shares("any", B)[1])),
        "gpu": GPU.name,
        "B": B,
        "batches": BATCHES,
        "calculator": calculator(),
    }


def calculated_times(stem: str, base: dict | None) -> dict:
    """A rung's roofline in milliseconds, as `ladder roofline` prints it."""
    if stem == AS_BEFORE:
        return {"roofline": base["roofline"], "ms": base["ms"], "total": "as 06", "gain": ""}
    parts = roofline_ms(work(B)[stem], GPU._asdict())
    ms = sum(parts)
    return {
        "roofline": dict(zip(LABELS, parts, strict=True)),
        "ms": ms,
        "total": f"{ms:.1f} ms",
        "gain": speed_change(base["ms"] if base else None, ms),
    }


def calculator() -> dict:
    """What report.js needs to calculate the same for other GPUs and B."""
    steps = []
    for stem, counts in counted()["cuda"].items():
        known = stem != AS_BEFORE
        steps.append({key: counts[key] for key in counts if key != "code"} if known else None)
    cards = {}
    for gpu in LISTED.values():
        largest, fits = what_fits(gpu)
        sheet = {unit: getattr(gpu, unit) for unit in ("fp32", "tf32", "half", "bandwidth")}
        words = {"rates": rates(gpu), "note": gpu.note, "fits": fits}
        cards[gpu.name] = sheet | words | {"largest": largest}
    return {"parts": PARTS, "steps": steps, "cards": cards}
