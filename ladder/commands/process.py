"""Python started in a process of its own, why it failed, and where its results go."""

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ladder.errors import BadInput
from ladder.files import ROOT


@dataclass
class Finished:
    """A process that came to its end."""

    stdout: str
    stderr: str
    status: int
    failure: str | None  # why it failed, in one line; None if it ended well


def run_python(*words, python: tuple[str, ...] = (sys.executable,), **env: str) -> Finished:
    """Run `python words…`, a script or `-m module`, with `env` added to the environment.

    This package is found, installed or not. Ctrl-C kills the process and goes on upwards.
    """
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **env}
    # Into files, not pipes: this process sleeps until the other ends, whatever that one prints.
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        with files[0].open("wb") as stdout, files[1].open("wb") as stderr:
            command = [*python, *map(str, words)]
            status = subprocess.run(command, env=env, stdout=stdout, stderr=stderr).returncode
        out, err = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return Finished(out, err, status, failure(status, err) if status else None)


def failure(returncode: int, stderr: str) -> str:
    """Why a process failed, in one line: its signal, its error line or the last one it wrote."""
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    lines = stderr.strip().splitlines() or ["it said nothing"]
    said = [line for line in lines if line.startswith("error ")] or lines
    return said[-1].removeprefix("error ")


def new_folder(name: str | Path | None, kind: str, exist_ok: bool = False) -> Path:
    """Make a folder for results: `name`, or runs/KIND-DATE-TIME where none is given.

    Raises BadInput if it cannot be made, or, unless that is `exist_ok`, is there already.
    """
    folder = Path(name or f"runs/{kind}-{datetime.now():%Y%m%d-%H%M%S}")
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {error.strerror}") from error
    return folder
