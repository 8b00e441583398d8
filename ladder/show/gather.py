"""The scripts of a climb as they were measured."""

from pathlib import Path

from ladder.errors import UsageError
from ladder.files import ROOT, git, write_atomic
from ladder.measure.climb import Climb
from ladder.measure.docstrings import describe, docstring
from ladder.show.diffs import diff_lines


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
