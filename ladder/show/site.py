"""The ladder as a page: what each rung changes and removes, what was reported and what measured."""

from pathlib import Path

from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.scripts import all_scripts, docstring, title
from ladder.measure.work import LABELS, roofline_ms, work
from ladder.show.blocks import BLOCK, climbs_of, measured_column, reported_column, rungs_of
from ladder.show.diffs import diff_lines
from ladder.show.gather import gather
from ladder.show.reported import reported_climb

GPU, B = "NVIDIA A100-SXM4-80GB", 16  # of the reported climb


def site_sections() -> list[dict]:
    """The ladder as it was reported, then the climbs that README.md shows, without their logs."""
    markers = BLOCK.finditer((ROOT / "README.md").read_text("utf-8"))
    rungs_marker = next(marker for marker in markers if marker["kind"] == "rungs")
    measured = {}
    sections = []
    for folder, _, rows in climbs_of(rungs_marker):
        section = gather(ROOT / folder)
        section["ablation"] = None
        for rung in section["rungs"]:  # the first section has the code
            rung |= {"doc": None, "base": None, "diff": None, "logs": {}}
        sections.append(section)
        measured[section["run"]["device"]] = measured_column(rungs_of(rows))
    return [reported_section(measured), *sections]


def reported_section(measured: dict[str, dict[int, str]]) -> dict:
    """The section of the climb on an A100 that others reported, with its calculated milliseconds.

    `measured` has for each device what a climb measured there, by number of the rung.
    """
    other = reported_climb()
    scripts = all_scripts()
    reported = reported_column(scripts, other)
    rungs = []
    for number, path in enumerate(scripts):
        figures = {"rung": title(path), "reported": reported[number]}
        for device, column in measured.items():
            figures[f"measured: {device}"] = column.get(number, "").strip("*")
        base = rungs[-1] if rungs else None
        rung = {
            "row": {"stem": path.stem, "logs": {}},
            "title": title(path),
            "figures": figures,
            "reported_ms": other["ms"].get(f"{number:02}"),
            "roofline": calculated(path),
            "base": base,
            "path": path,
            "source": "as they are in the repository",
            "doc": docstring(path),
            "diff": diff_lines(base["path"], path)[2:] if base else None,
            "logs": {},
        }
        rungs.append(rung)
    longest = max([other["ms"]["00"], *(sum(rung["roofline"].values()) for rung in rungs)])
    return {"id": "ladder", "reported": other, "rungs": rungs, "longest": longest, "climb": {}}


def calculated(path: Path) -> dict[str, float]:
    """The milliseconds of each part of a rung's step at the GPU's data sheet; empty if unknown."""
    step = work(B).get(path.stem)
    if not step or path not in all_scripts()[:11]:
        return {}
    return dict(zip(LABELS, roofline_ms(step, find_gpu(GPU)._asdict()), strict=True))
