"""What `ladder report` shows of one climb: its rows, and the script and the logs of each."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ladder.errors import UsageError
from ladder.files import COMMITTED, git, write_atomic
from ladder.measure.docstrings import describe, docstring
from ladder.measure.folder import Climb, climb_logs
from ladder.measure.rows import COMPARABLE, Row, index_of_base, read_climb
from ladder.measure.work import LABELS
from ladder.show.diffs import diff_lines
from ladder.show.tables import caption, cells, columns, footnotes, sizes, warnings

BESIDE = ("commit", "python", "steps")  # may differ between a climb and one --without beside it


@dataclass
class Doc:
    """A script's docstring; without fields all of it is the change."""

    change: str
    why: str = ""
    numerics: str = ""
    run: str = ""


@dataclass
class Rung:
    """A row of a climb on the page: its script, diff and roofline as measured, and its logs."""

    title: str
    row: Row
    path: Path | None
    source: str  # where the script comes from, in words
    doc: Doc | None
    base: "Rung | None"  # the one that it is compared with
    over: str  # says that, where it is not the row above
    diff: list[str] | None
    roofline: dict[str, float]  # milliseconds of each part, of all together, and as measured
    effective: str
    gain_text: str
    figures: dict[str, str]  # the cells of its row by their headings
    logs: dict[str, str]  # texts, by the names of their files


@dataclass
class ClimbSection:
    """The section of the page that shows one climb."""

    shows: ClassVar[str] = "climb"
    id: str
    label: str
    caption: str
    climb: Climb
    run: dict[str, str]  # of the first row's first log
    steps: str  # of a run, in words
    settings: list  # what it has in common with a climb --without beside it
    rungs: list[Rung]
    notes: list[str]
    warnings: list[str]  # of a climb that has not ended, and of a busy machine
    without: "ClimbSection | None" = None  # the climb --without that stands beside it


def gather(folder: Path) -> ClimbSection:
    """The section of a climb. Raises UsageError if it is none."""
    climb, rows = read_climb(folder)
    good = [row for row in rows if row.logs]
    if not good:
        raise UsageError(f"{folder} cannot be shown: none of its runs has ended well yet")
    log = good[0].log
    run = log.run
    rungs = gather_rungs(folder, climb, rows)
    notices = warnings(climb)
    if not climb.ended:
        done = sum(len(row.logs) + len(row.failures) for row in rows)
        notices.insert(0, f"not finished: {done} of {climb.rounds * len(rows)} runs are in")
    what = climb.comparison.what
    if climb.kind == "climb":
        what = f"{rungs[0].title} to {rungs[-1].title}"
    size = f"B={sizes(good)}, T={run['T']}"
    steps = f"{log.warmup_steps} for warm-up, left out; {log.measured_steps} measured in each run"
    return ClimbSection(
        id=folder.resolve().name,
        label=f"{run['device']}, {climb.started}, {run['model']}, {size}: {what}",
        caption=f"{caption(climb, good)}.",
        climb=climb,
        run=run,
        steps=steps,
        settings=[run.get(key) for key in COMPARABLE if key not in BESIDE],
        rungs=rungs,
        notes=footnotes(climb, rows),
        warnings=notices,
    )


def gather_rungs(folder: Path, climb: Climb, rows: list[Row]) -> list[Rung]:
    """Each row of a climb with the script that it measured."""
    against = climb.comparison.against
    headings = columns(climb, rows)
    texts = climb_logs(folder, climb)
    rungs = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            path, source = as_measured(folder, climb, row.stem, Path(scratch))
            base = None
            over = ""
            if rungs and against == "previous":
                base = rungs[index_of_base(rows, len(rungs))]
                if base is not rungs[-1]:
                    over = f" (over {base.title})"
            elif rungs and against == "top":
                base = rungs[0]
            diff = None
            if path and base and base.path:
                diff = diff_lines(base.path, path)[2:]
            line = cells(row)
            effective = row.log.effective if row.logs else {}
            roofline = {}
            if row.roofline:
                roofline = dict(zip(LABELS, row.roofline, strict=True))
                roofline["together"] = sum(row.roofline)
                roofline["measured"] = row.ms
            rung = Rung(
                row=row,
                title=line["rung"].text,
                path=path,
                source=source,
                doc=doc_of(path) if path else None,
                base=base,
                over=over,
                diff=diff,
                roofline=roofline,
                effective=" · ".join(f"{name}: {value}" for name, value in effective.items()),
                gain_text=line["gain"].text,
                figures={headings[name]: line[name].text for name in headings},
                logs={f"{row.name}.r{k}.log": texts[row.name, k] for k in sorted(row.logs)},
            )
            rungs.append(rung)
    return rungs


def doc_of(path: Path) -> Doc:
    """What the docstring of a script says."""
    try:
        fields = describe(path)
    except UsageError:
        return Doc(docstring(path))
    return Doc(fields["Change"], fields["Why"], fields["Numerics"], fields["Run"])


def as_measured(folder: Path, climb: Climb, stem: str, scratch: Path) -> tuple[Path | None, str]:
    """A script as it was when measured, and where it comes from, in words; (None, why) without."""
    names = {Path(name).stem: name for name in climb.scripts}
    name = names.get(stem, f"{stem}.py")
    commit = climb.commit
    source = "kept with its logs"
    path = kept(folder, name)
    if not path:
        source = f"at commit {commit}"
        text = ""
        if COMMITTED.fullmatch(commit):
            text = git("show", f"{commit}:./{name}").stdout
        if not text:
            return None, f"the script is neither with its logs nor at commit {commit}"
        path = scratch / f"{stem}.py"
        write_atomic(path, text.encode())
    try:
        docstring(path)
    except UsageError:  # then the row says how it failed
        return None, f"{source}, but Python cannot read it"
    return path, source


def kept(folder: Path, name: str) -> Path | None:
    """A script beside the logs of a climb, or in the copy of the code that it made."""
    folder = folder.resolve()
    for path in (folder / Path(name).name, folder / "code" / name):
        if path.is_file() and path.resolve().is_relative_to(folder):  # a link may lead elsewhere
            return path
    return None
