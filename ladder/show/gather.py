"""What a page shows of a climb: its rows, and its scripts as they were measured."""

from dataclasses import dataclass
from pathlib import Path

from ladder.errors import UsageError
from ladder.files import ROOT, git, write_atomic
from ladder.measure.docstrings import describe, docstring
from ladder.measure.folder import Climb
from ladder.measure.rows import COMPARABLE, Row, read_climb
from ladder.show.diffs import diff_lines

BESIDE = ("commit", "python", "steps")  # may differ between a climb and one --without beside it


@dataclass
class Gathered:
    """A climb that can be shown."""

    folder: Path
    id: str
    climb: Climb
    rows: list[Row]
    ran: list[Row]  # those that have logs

    @property
    def settings(self) -> list:
        """What it has in common with a climb --without beside it."""
        run = self.ran[0].log.run
        return [run.get(key) for key in COMPARABLE if key not in BESIDE]


def gather(folder: Path) -> Gathered:
    """A climb. Raises UsageError if it is none, or nothing of it can be shown."""
    climb, rows = read_climb(folder)
    ran = [row for row in rows if row.logs]
    if not ran:
        raise UsageError(f"{folder} cannot be shown: none of its runs has ended well yet")
    return Gathered(folder, folder.resolve().name, climb, rows, ran)


def scripts_of(folder: Path, climb: Climb, scratch: Path) -> dict[str, Path]:
    """The scripts of a climb by stem, as far as they are there.

    A published climb is ours: what is not beside its logs is taken from git and written into
    `scratch`. Any other may be a stranger's: its scripts are what a look into its folder finds, and
    nothing that its climb.json says chooses a file.
    """
    scripts = found_in(folder)
    if folder.resolve().parent == ROOT / "logs":
        for name in climb.scripts:
            path = scratch / Path(name).name
            text = git("show", f"{climb.commit}:./{name}").stdout
            if path.stem not in scripts and text:
                write_atomic(path, text.encode())
                scripts[path.stem] = path
    return scripts


def found_in(folder: Path) -> dict[str, Path]:
    """The scripts in the folder of a climb by stem: beside its logs, or in its copy of the code."""
    folder = folder.resolve()
    scripts = {}
    for pattern in ("code/*/*.py", "code/*.py", "*.py"):
        for path in sorted(folder.glob(pattern)):
            # A link may lead elsewhere.
            if path.is_file() and path.resolve().is_relative_to(folder):
                scripts[path.stem] = path
    return scripts


def fields_of(path: Path) -> dict[str, str]:
    """What the docstring of a script says; without our fields all of it is the Change.

    Nothing, if Python cannot read it.
    """
    try:
        return describe(path)
    except UsageError:
        pass
    try:
        return {"Change": docstring(path)}
    except UsageError:
        return {}


def diff_of(before: Path | None, after: Path | None) -> list[str]:
    """The lines of the diff of two scripts; none if one is not there, or not Python."""
    if not before or not after:
        return []
    try:
        return diff_lines(before, after)[2:]
    except UsageError:
        return []
