"""What `ladder report` shows of one climb: its rows, and the script and the logs of each."""

import tempfile
from pathlib import Path

from ladder.errors import BadInput
from ladder.files import ROOT, git
from ladder.measure.kinds import kind_of
from ladder.measure.rows import COMPARABLE, Row, read_climb
from ladder.measure.scripts import docstring
from ladder.measure.work import LABELS
from ladder.show.diffs import diff_lines
from ladder.show.publishable import kept
from ladder.show.tables import caption, cells, columns, doubts, first_beyond, foot, sizes

BESIDE = ("commit", "python", "steps")  # may differ between a climb and an ablation beside it


def gather(folder: Path) -> dict:
    """All that the page shows of one climb. Raises BadInput if it is none."""
    facts, rows = read_climb(folder)
    good = [row for row in rows if not row.failure]
    if not good:
        raise BadInput(f"{folder} cannot be shown: none of its runs has ended well yet")
    run, kind = good[0].log.run, kind_of(facts)
    rungs = find_rungs(folder, facts, rows)
    label = "{device}, {started}, {model}, B={B}, T={T}: "
    label = label.format(**run | {"B": sizes(good), "started": facts["started"]})
    between = f"{rungs[0]['title']} to {rungs[-1]['title']}"
    return {
        "id": folder.resolve().name,
        "folder": short_name(folder),
        "label": label + (between if facts["kind"] == "climb" else kind.what),
        "caption": f"{caption(facts, good)}.",
        "facts": facts,
        "run": run,
        "result": good[0].log.result,
        # What it has in common with an ablation that belongs to it.
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "kind": kind,
        "rungs": rungs,
        "beyond": first_beyond(facts, rows),
        "notes": foot(facts, rows) + doubts(facts),
    }


def find_rungs(folder: Path, facts: dict, rows: list[Row]) -> list[dict]:
    """Each row with the docstring and diff of its script as measured, and its logs."""
    against, heads = kind_of(facts).against, columns(facts, rows)
    rungs = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            path, source = as_measured(folder, facts, row.script, Path(scratch))
            base = rungs[-1 if against == "above" else 0] if rungs and against else None
            both = base and base["path"] and path
            line, parts, state = cells(row), row.roofline or (), ""
            if row.gain and row.gain.significant:
                state = "up" if row.gain.ratio > 1 else "down"
            paths = [folder / f"{row.stem}.r{repeat}.log" for repeat in sorted(row.logs)]
            rung = {
                "row": row,
                "title": line["rung"],
                "gain": line["gain"],
                "figures": {head: line[column] for column, head in heads.items()},
                "state": state,
                "base": base,
                "roofline": dict(zip(LABELS, parts, strict=False)),  # milliseconds, or empty
                "path": path,
                "source": source,
                "doc": docstring(path) if path else None,
                "diff": diff_lines(base["path"], path)[2:] if both else None,
                "logs": {path.name: path.read_text(encoding="utf-8") for path in paths},
            }
            rungs.append(rung)
    return rungs


def as_measured(folder: Path, facts: dict, stem: str, into: Path) -> tuple[Path | None, str]:
    """A script as it was when measured, and where it comes from, in words; (None, why) without."""
    name = {Path(name).stem: name for name in facts["scripts"]}.get(stem, f"{stem}.py")
    path, source, commit = kept(folder, name), "kept with its logs", facts["commit"]
    if not path and (text := git("show", f"{commit}:./{name}").stdout):
        path, source = into / f"{stem}.py", f"at commit {commit}"
        path.write_text(text, encoding="utf-8")
    if not path:
        return None, f"the script is not here, nor is commit {commit}, at which it ran"
    try:
        docstring(path)
    except BadInput:  # then the row says how it failed
        return None, f"{source}, but Python cannot read it"
    return path, source


def short_name(path: Path) -> str:
    """From the top of the project where it is inside, else its name alone: no one's home."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
