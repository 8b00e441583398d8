"""Scripts started in processes of their own, where they write, and what is said of failures."""

import os
import signal
from pathlib import Path

from ladder.commands.scripts import ROOT
from ladder.errors import BadInput


def child_env(**more: str) -> dict[str, str]:
    """The environment in which a process finds this package, installed or not."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}


def failure(returncode: int, stderr: str) -> str:
    """Why a process failed, in one line: its signal, its error line or the last one it wrote."""
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    lines = stderr.strip().splitlines() or ["it said nothing"]
    said = [line for line in lines if line.startswith("error ")] or lines
    return said[-1].removeprefix("error ")


def new_folder(name: str | Path, exist_ok: bool = False) -> Path:
    """Make a folder for results. Raises BadInput if it cannot be made, or, unless that is
    `exist_ok`, is there already."""
    try:
        Path(name).mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise BadInput(f"cannot make the folder {name}: {error.strerror}") from error
    return Path(name)
