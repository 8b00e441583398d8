"""Python started in a process of its own, and why it failed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ladder.checkout import ROOT
from ladder.errors import UsageError
from ladder.text import printable

# Not by PYTHONPATH: a colon in the folder's name would cut it in two.
START = """import runpy, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it dies with its parent
sys.path[0], *sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start_python(
    *arguments: str | Path, package: Path = ROOT, **env: str
) -> subprocess.CompletedProcess:
    """Run `python ARGUMENTS…`, a script or `-m module`, with `env` added to the environment.

    It imports the `ladder` that is in the folder `package`. Ctrl-C kills it: KeyboardInterrupt is
    raised. So does, on Linux, whatever ends this process.
    """
    return subprocess.run(
        [sys.executable, "-c", START, str(package), *map(str, arguments)],
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def check_ended_well(done: subprocess.CompletedProcess):
    """Raise UsageError if a process failed, with its signal, its error line or the last line that
    it wrote."""
    status = done.returncode
    if status in (129, 130, 143):  # as scripts end at SIGHUP, Ctrl-C and SIGTERM
        status = 128 - status
    if status == -9:
        raise UsageError("killed by SIGKILL, as where memory is full")
    if status < 0:
        raise UsageError(f"killed by {signal.Signals(-status).name}")
    if status:
        lines = done.stderr.strip().splitlines() or ["no output on stderr"]
        errors = [line for line in lines if line.startswith("error ")]
        last = [*lines, *errors][-1]
        raise UsageError(printable(last.removeprefix("error ")))
