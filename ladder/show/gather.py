"""What `ladder report` shows of one climb: its rows, and the script and the logs of each."""

import tempfile
from pathlib import Path

from ladder.errors import UsageError
from ladder.files import git
from ladder.measure.climb import Climb, climb_logs
from ladder.measure.docstrings import describe, docstring
from ladder.measure.rows import COMPARABLE, Row, index_of_base, read_climb
from ladder.measure.work import LABELS
from ladder.show.diffs import diff_lines
from ladder.show.tables import caption, cells, columns, footnotes, sizes, warnings

BESIDE = ("commit", "python", "steps")  # may differ between a climb and one --without beside it


def gather(folder: Path) -> dict:
    """The section of the page that shows one climb. Raises UsageError if it is none."""
    climb, rows = read_climb(folder)
    good = [row for row in rows if row.logs]
    if not good:
        raise UsageError(f"{folder} cannot be shown: none of its runs has ended well yet")
    run = good[0].log.run
    rungs = gather_rungs(folder, climb, rows)
    longest = max(sum(rung["roofline"].values()) for rung in rungs)
    what = climb.comparison.what
    if climb.kind == "climb":
        what = f"{rungs[0]['title']} to {rungs[-1]['title']}"
    size = f"B={sizes(good)}, T={run['T']}"
    return {
        "id": folder.resolve().name,
        "shows": "climb",
        "label": f"{run['device']}, {climb.started}, {run['model']}, {size}: {what}",
        "caption": f"{caption(climb, good)}.",
        "climb": climb,
        "rows": rows,
        "run": run,
        "result": good[0].log.result,
        # What it has in common with a climb --without that belongs to it.
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "comparison": climb.comparison,
        "rungs": rungs,
        "longest": longest,  # bar of milliseconds
        "notes": footnotes(climb, rows) + warnings(climb),
    }


def gather_rungs(folder: Path, climb: Climb, rows: list[Row]) -> list[dict]:
    """Each row with the docstring and diff of its script as measured, and its logs."""
    against = climb.comparison.against
    headings = columns(climb, rows)
    texts = climb_logs(folder, climb)
    rungs = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            path, source = as_measured(folder, climb, row.stem, Path(scratch))
            base = None
            if rungs and against == "previous":
                base = rungs[index_of_base(rows, len(rungs))]
            elif rungs and against == "top":
                base = rungs[0]
            diff = None
            if path and base and base["path"]:
                diff = diff_lines(base["path"], path)[2:]
            line = cells(row)
            rung = {
                "row": row,
                "stem": row.name,
                "title": line["rung"].text,
                "effective": row.log.effective if row.logs else {},
                "gain": line["gain"].text,
                "figures": {headings[name]: line[name].text for name in headings},
                "state": state(row),
                "base": base,
                "roofline": dict(zip(LABELS, row.roofline or (), strict=False)),  # milliseconds
                "path": path,
                "source": source,
                "doc": words(path) if path else {},
                "diff": diff,
                "logs": {f"{row.name}.r{k}.log": texts[row.name, k] for k in sorted(row.logs)},
            }
            rungs.append(rung)
    return rungs


def words(path: Path) -> dict[str, str]:
    """The fields of a script's docstring; without fields all of it is the change."""
    try:
        return describe(path)
    except UsageError:
        return {"Change": docstring(path)}


def state(row: Row) -> str:
    """`up` if the row is significantly faster than its base, `down` if slower, else empty."""
    if not row.gain or not row.gain.significant:
        return ""
    return "up" if row.gain.value > 1 else "down"


def as_measured(folder: Path, climb: Climb, stem: str, scratch: Path) -> tuple[Path | None, str]:
    """A script as it was when measured, and where it comes from, in words; (None, why) without."""
    names = {Path(name).stem: name for name in climb.scripts}
    name = names.get(stem, f"{stem}.py")
    commit = climb.commit
    source = "kept with its logs"
    path = kept(folder, name)
    if not path:
        source = f"at commit {commit}"
        text = git("show", f"{commit}:./{name}").stdout
        if not text:
            return None, f"the script is neither with its logs nor at commit {commit}"
        path = scratch / f"{stem}.py"
        path.write_text(text, encoding="utf-8")
    try:
        docstring(path)
    except UsageError:  # then the row says how it failed
        return None, f"{source}, but Python cannot read it"
    return path, source


def kept(folder: Path, name: str) -> Path | None:
    """A script beside the logs of a climb, or in the copy of the code that it made."""
    for path in (folder / Path(name).name, folder / "code" / name):
        if path.is_file():
            return path
    return None
