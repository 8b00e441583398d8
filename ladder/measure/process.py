"""Python started in a process of its own, why it failed, and where results go."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from subprocess import DEVNULL, Popen

from ladder.errors import BadInput
from ladder.files import ROOT, write_atomic
from ladder.text import printable


@dataclass
class Finished:
    """A process that came to its end."""

    stdout: str
    stderr: str
    status: int
    failure: str | None  # why it failed, in one line; None if it ended well

    def answer(self) -> dict | list:
        """The last line of JSON that it printed: libraries print too. Raises BadInput without."""
        found = re.findall(r"^[{\[].*[}\]]$", self.stdout, flags=re.MULTILINE)
        if self.failure or not found:
            raise BadInput(self.failure or "it printed no result")
        return json.loads(found[-1])


def run_python(*words, package: Path = ROOT, folder: str | None = None, **env: str) -> Finished:
    """Run `python words…`, a script or `-m module`, with `env` added to the environment.

    It imports the `ladder` that is in the folder `package`. What it prints is kept in `folder`, or
    that for temporary files, until it ends; this process sleeps. Ctrl-C kills it and goes on
    upwards. Raises OSError if it failed and the disk of `folder` is full: why may be lost.
    """
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    command, env = [sys.executable, *map(str, words)], {**os.environ, "PYTHONPATH": path, **env}
    with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as err:
        # `python -m` looks into the current folder first.
        where = package if words[0] == "-m" and package != ROOT else None
        child = Popen(command, env=env, cwd=where, stdin=DEVNULL, stdout=out, stderr=err)
        try:
            status = child.wait()
        finally:  # subprocess.call would not wait for what it kills after Ctrl-C
            child.kill()
            child.wait()
        texts = [file.seek(0) or file.read().decode(errors="replace") for file in (out, err)]
    if status and folder:
        write_atomic(Path(folder, "room"), bytes(2**16))
    return Finished(*texts, status, failure(status, texts[1]) if status else None)


def failure(status: int, stderr: str) -> str:
    """Why a process failed, in one line: its signal, its error line or the last one it wrote."""
    if status in (129, 130, 143):  # as scripts end at SIGHUP, Ctrl-C and SIGTERM
        status = 128 - status
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}" + ", as where memory is full" * (name == "SIGKILL")
    lines = stderr.strip().splitlines() or ["no output on stderr"]
    said = [line for line in lines if line.startswith("error ")] or lines
    return printable(said[-1].removeprefix("error "))[:300]


def given_flags(args: argparse.Namespace, *names: str) -> list[str]:
    """The given ones of these flags, as words for a script's command line."""
    values = [(name, getattr(args, name)) for name in names]
    return [f"--{name.replace('_', '-')}={v}" for name, v in values if v is not None]


def load() -> float:
    """How many programs wanted to run at a time, on average of the last minute; 0 on Windows."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def busy(load: float) -> str | None:
    """A line if `load` is more than three quarters of the cores."""
    cores = os.cpu_count() or 1
    if load > 0.75 * cores:
        return f"load {load:.1f} on {cores} core{'s' * (cores > 1)}: these times will mean little"


def first_line(*command: str) -> str:
    """The first line that a program prints; empty if it fails, hangs or is not installed."""
    how = dict(capture_output=True, text=True, errors="replace")
    try:
        done = subprocess.run(command, check=True, timeout=10, **how)  # nvidia-smi hangs at times
        return done.stdout.partition("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return ""


def make_folder(name: str | Path | None, kind: str) -> Path:
    """Make a folder for results, `name` or runs/KIND-DATE-TIME. Raises OSError if it is there."""
    folder = Path(name or f"runs/{kind}-{datetime.now():%Y%m%d-%H%M%S}")
    folder.mkdir(parents=True)
    return folder
