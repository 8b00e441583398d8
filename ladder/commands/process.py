"""Python started in a process of its own, why it failed, and where results and tables go."""

import ctypes
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import BinaryIO

from rich.console import Console

from ladder.errors import BadInput
from ladder.files import ROOT
from ladder.log import printable

LONGEST_REASON = 300  # characters
ANSWER_SECONDS = 10  # nvidia-smi hangs where a driver does
# `python -m` looks in the current folder first, which may hold another checkout, or a torch.py.
RUN_MODULE = """import sys
sys.path = [path for path in sys.path if path]
del sys.argv[0]
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)"""
# Linux kills a child when its parent is gone, even by kill -9: prctl(PR_SET_PDEATHSIG, SIGKILL).
DIE_WITH_PARENT = None
if sys.platform == "linux":
    DIE_WITH_PARENT = partial(ctypes.CDLL(None).prctl, 1, signal.SIGKILL)


@dataclass
class Finished:
    """A process that came to its end."""

    stdout: str
    stderr: str
    status: int
    failure: str | None  # why it failed, in one line; None if it ended well

    def answer(self) -> dict | list:
        """The JSON in a line of what it printed. Raises BadInput if it failed or has none.

        Libraries print too, such as oneDNN where ONEDNN_VERBOSE is set.
        """
        if self.failure:
            raise BadInput(self.failure)
        for line in reversed(self.stdout.splitlines()):
            with suppress(ValueError):
                if line.startswith(("{", "[")):
                    return json.loads(line)
        raise BadInput("it printed no result")


def run_python(
    *words,
    python: tuple[str, ...] = (sys.executable,),
    folder: str | Path | None = None,
    **env: str,
) -> Finished:
    """Run `python words…`, a script or `-m module`, with `env` added to the environment.

    Of what it prints the last megabyte is kept; all of it is meanwhile in `folder`, or that for
    temporary files. Ctrl-C kills the process and goes on upwards. Raises OSError if it failed and
    the disk of `folder` is full: why it failed may be lost.
    """
    # Into files, not pipes: this process sleeps until the other ends, whatever that one prints.
    file = partial(tempfile.TemporaryFile, dir=folder)
    with file() as stdout, file() as stderr:
        child = start(*words, python=python, stdout=stdout, stderr=stderr, **env)
        try:
            status = child.wait()
        finally:
            child.kill()  # it has ended, but after Ctrl-C
            child.wait()
        out, err = map(tail, (stdout, stderr))
        if status and folder:
            stderr.write(bytes(2**16))  # on a full disk it did not fail by itself
            stderr.flush()
    return Finished(out, err, status, failure(status, err) if status else None)


def start(*words, python=(sys.executable,), stdout=DEVNULL, stderr=DEVNULL, **env: str) -> Popen:
    """Start `python words…` with `env` added to the environment; it dies with this process.

    This package is found, installed or not, and no other one. ddp_run.py and copies of it save no
    checkpoint: what is measured is no training to resume. A breakpoint() in it waits for nobody.
    """
    if words[0] == "-m":
        words = ("-c", RUN_MODULE, *words[1:])
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "LADDER_MEASURED": "yes", **env}
    command = [*python, *map(str, words)]
    streams = dict(stdin=DEVNULL, stdout=stdout, stderr=stderr)
    return Popen(command, env=env, **streams, preexec_fn=DIE_WITH_PARENT)


class Screen(Console):
    """A console that raises BrokenPipeError, as print does; rich's exits with status 1."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich caught


@contextmanager
def if_slow(after: float = 2):
    """Say on stderr what is going on, if the imports inside take more than two seconds."""
    words = "note  importing PyTorch and others: seconds, a minute where the disk is cold"
    timer = threading.Timer(after, print, [words], {"file": sys.stderr, "flush": True})
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tail(file: BinaryIO, size: int = 2**20) -> str:
    """The end of a file as text."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - size))
    return file.read().decode(errors="replace")


def once() -> Callable:
    """A handler of signals: only the first raises KeyboardInterrupt."""
    first = iter([True])

    def stop(*_):
        if next(first, False):
            raise KeyboardInterrupt

    return stop


def first_line(*command: str) -> str:
    """The first line that a program prints; empty if it fails, hangs or is not installed."""
    how = dict(capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS)
    try:
        done = subprocess.run(command, check=True, **how)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.partition("\n")[0]


def failure(returncode: int, stderr: str) -> str:
    """Why a process failed, in one line: its signal, its error line or the last one it wrote."""
    if returncode in (129, 130, 143):  # as scripts end at SIGHUP, Ctrl-C and SIGTERM
        returncode = 128 - returncode
    if returncode < 0:
        names = {one.value: one.name for one in signal.Signals}  # it lacks most real-time ones
        return f"killed by {names.get(-returncode, f'signal {-returncode}')}"
    lines = stderr.strip().splitlines() or ["it said nothing"]
    said = [line for line in lines if line.startswith("error ")] or lines
    return printable(said[-1].removeprefix("error "))[:LONGEST_REASON]


def compile_cache(folder: Path) -> Path:
    """Where the scripts that write to this folder keep compiled code: in it, if that can be.

    PyTorch splits the compiler's command at blanks and quotes, also those of the cache's path: then
    it is a temporary folder, always the same. Raises BadInput if others may write there.
    """
    inside = str(folder.resolve() / "cache")
    if shlex.quote(inside) == inside:
        return Path(inside)
    name = hashlib.sha256(os.fsencode(inside)).hexdigest()[:16]
    cache = Path(tempfile.gettempdir(), f"ladder-cache-{name}")
    cache.mkdir(mode=0o700, exist_ok=True)
    there = cache.lstat()
    if os.name == "posix" and (there.st_uid != os.getuid() or there.st_mode & 0o022):
        raise BadInput(f"{cache}, for compiled code, is not yours alone: delete it, or set TMPDIR")
    return cache


def new_folder(name: str | Path | None, kind: str) -> Path:
    """Make a folder for results: `name`, or runs/KIND-DATE-TIME where none is given.

    Raises BadInput if it cannot be made or is there already.
    """
    if name == "":
        raise BadInput("the folder to make has an empty name: give it one")
    folder = Path(name or f"runs/{kind}-{datetime.now():%Y%m%d-%H%M%S}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {error.strerror}") from error
    return folder
