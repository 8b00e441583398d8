"""The scripts of a climb as they were measured."""

from pathlib import Path

from ladder.files import ROOT, git, write_atomic
from ladder.measure.folder import Climb


def scripts_of(folder: Path, climb: Climb, scratch: Path) -> dict[str, Path]:
    """The scripts of a climb by stem, as far as they are there.

    A published climb is ours: what is not beside its logs is taken from git and written into
    `scratch`. Any other may be a stranger's: its scripts are what a look into its folder finds, and
    nothing that its climb.json says chooses a file.
    """
    folder = folder.resolve()
    scripts = {}
    if folder.parent == ROOT / "logs":
        for name in climb.scripts:
            path = scratch / Path(name).name
            text = git("show", f"{climb.commit}:./{name}").stdout
            if text:
                write_atomic(path, text.encode())
                scripts[path.stem] = path
    # Its copy of the code, and beside its logs. A link may lead elsewhere.
    for pattern in ("code/*/*.py", "code/*.py", "*.py"):
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and path.resolve().is_relative_to(folder):
                scripts[path.stem] = path
    return scripts
