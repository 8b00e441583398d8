"""Python started in a process of its own, and why it failed."""

import argparse
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ladder.files import ROOT
from ladder.text import printable


@dataclass
class Finished:
    """A process that has ended."""

    stdout: str
    stderr: str
    status: int
    failure: str | None  # why it failed, in one line; None if it ended well


def run_python(*arguments, package: Path = ROOT, timeout: float | None = None, **env) -> Finished:
    """Run `python ARGUMENTS…`, a script or `-m module`, with `env` added to the environment.

    It imports the `ladder` that is in the folder `package`. Ctrl-C and `timeout` (seconds) kill it:
    KeyboardInterrupt and subprocess.TimeoutExpired are raised.
    """
    path = str(package)
    if "PYTHONPATH" in os.environ:
        path += os.pathsep + os.environ["PYTHONPATH"]
    where = None
    if arguments[0] == "-m" and package != ROOT:
        where = package  # `python -m` looks into the current folder first
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **env},
        cwd=where,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
    )
    why = failure(done.returncode, done.stderr) if done.returncode else None
    return Finished(done.stdout, done.stderr, done.returncode, why)


def failure(status: int, stderr: str) -> str:
    """Why a process failed, in one line: its signal, its error line or the last one it wrote."""
    if status in (129, 130, 143):  # as scripts end at SIGHUP, Ctrl-C and SIGTERM
        status = 128 - status
    if status == -9:
        return "killed by SIGKILL, as where memory is full"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    lines = stderr.strip().splitlines()
    if not lines:
        return "no output on stderr"
    errors = [line for line in lines if line.startswith("error ")]
    last = errors[-1] if errors else lines[-1]
    return printable(last.removeprefix("error "))[:300]


def given_flags(args: argparse.Namespace, *names: str) -> list[str]:
    """The flags of these names that were given, as arguments for a script's command line."""
    flags = []
    for name in names:
        value = getattr(args, name)
        if value is not None:
            flags.append(f"--{name.replace('_', '-')}={value}")
    return flags
