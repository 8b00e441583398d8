"""The ladder as a page: what each rung changes and removes, what was reported and what measured."""

from blocks import A100, calculated, climbs_of, reported_column, rungs_marker

from ladder.files import ROOT
from ladder.measure.docstrings import docstring, title
from ladder.measure.scripts import base_of, rungs
from ladder.show.diffs import diff_lines
from ladder.show.gather import gather
from ladder.show.reported import reported_climb


def site_sections() -> list[dict]:
    """The ladder as it was reported, then the climbs that README.md shows, without their logs."""
    readme = (ROOT / "README.md").read_text("utf-8")
    climbs = climbs_of(rungs_marker(readme))
    sections = [reported_section(climbs)]
    for folder, _, _ in climbs:
        section = gather(ROOT / folder)
        section["ablation"] = None
        for rung in section["rungs"]:  # the first section has the code
            rung |= {"doc": None, "base": None, "diff": None, "logs": {}}
        sections.append(section)
    return sections


def reported_section(climbs: list) -> dict:
    """The section of the climb on an A100 that others reported, with its calculated milliseconds.

    Inside each rung stands its line of README.md's table, of these climbs.
    """
    other = reported_climb()
    scripts = rungs()
    reported = reported_column(scripts, other)
    shown = {}
    longest = other["ms"]["00"]
    for number, path in enumerate(scripts):
        base = shown.get(base_of(path))
        rung = {
            "stem": path.stem,
            "title": title(path),
            "effective": {},
            "figures": {},
            "reported": reported[number],
            "reported_ms": other["ms"].get(f"{number:02}"),
            "roofline": calculated(path, A100),
            "base": base,
            "path": path,
            "source": "as they are in the repository",
            "doc": docstring(path),
            "diff": diff_lines(base["path"], path)[2:] if base else None,
            "logs": {},
        }
        longest = max(longest, sum(rung["roofline"].values()))
        shown[path] = rung
    return {"id": "ladder", "reported": other, "rungs": [*shown.values()], "longest": longest}
