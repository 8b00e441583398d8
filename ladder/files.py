"""The checkout on disk: its folder, its commit, folders for results, and atomic writes.

This module does not import torch.
"""

import os
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import IO

from ladder.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (ROOT / "baseline.py").exists()  # else only the package is installed
SCRIPTS = ("baseline.py", "ddp_run.py", "fsdp_run.py")  # outside the folders
# What makes the numbers: the scripts, what they import or read, and what measures. Nothing in
# ladder/show/ or ladder/commands/.
RUNNING_CODE = (
    *SCRIPTS,
    "speedups/*.py",
    "cpu/*.py",
    "memory/*.py",
    "beyond/*.py",
    "peers/*.py",
    "ladder/*.py",
    "ladder/gpus.csv",
    "ladder/measure/*.py",
    "ladder/measure/work.json",
    "data/tinyshakespeare.bin",
)
COMMITTED = re.compile("[0-9a-f]{12}")  # what commit() returns where no change is uncommitted


def require_own(path: Path, what: str, how: str, has: str = "ladder/files.py"):
    """Raise UsageError if `path` is in another checkout than this package, or none is here.

    `what` and `how` are words for the error: what is there, and what runs that checkout's package.
    A checkout is a folder with `has` and baseline.py; a climb's copy of the code counts as one.
    """
    path = path.resolve()
    for folder in (path, *path.parents):
        if (folder / has).exists() and (folder / "baseline.py").exists():
            if folder != ROOT:
                how = f"{how.format(folder)} runs that one's; or `pip install -e {folder}`"
                raise UsageError(f"{what} {folder}, but this `ladder` is that of {ROOT}: {how}")
            return
    if not IS_CHECKOUT:
        how = "clone the repository, and `pip install -e .` in it"
        raise UsageError(f"`ladder` works on the scripts, which are not here: {how}")


def lock(folder: Path) -> IO:
    """Lock `folder` until the file returned is closed, or the process ends in whatever way.

    Raises UsageError if another process holds the lock.
    """
    file = (folder / ".lock").open("a")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"another run is at work in {folder}: wait, or choose another") from None
    except (ImportError, OSError):
        pass  # Windows, and file systems without locks
    return file


def require_readable(path: Path):
    """Read a file to its end. Raises UsageError if the system does not let us."""
    try:
        with path.open("rb") as file:
            while file.read(2**20):
                pass
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def silence(stream: IO):
    """Send what a broken stream still buffers, and all that follows, to os.devnull."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def make_folder(name: str | Path | None, what: str) -> Path:
    """Make a folder for results, `name` or runs/WHAT-DATE-TIME. Raises OSError if it is there."""
    folder = Path(name or f"runs/{what}-{datetime.now():%Y%m%d-%H%M%S}")
    folder.mkdir(parents=True)
    return folder


def write_atomic(path: Path, content):
    """Write `content` to `path` atomically: to another file, flushed to disk and then renamed.

    `content` is bytes, or a function that writes to the open binary file. What kill -9 leaves of
    that other file is replaced by the next write into the folder. Raises OSError, or what such a
    function raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name("unfinished.tmp")
    try:
        with temporary.open("w+b") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # As torch.save closes the file, its own error hides the real one: a full disk, Ctrl-C.
        if isinstance(error, RuntimeError):
            error = error.__context__ or error
        if isinstance(error, OSError):
            error.filename = str(path)  # the error of a full disk names no file
        raise error from None


def git(*arguments: str) -> subprocess.CompletedProcess:
    """Run git in the checkout; the caller checks returncode. `stderr` says why in one line."""
    command = ["git", "-C", str(ROOT), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", "git is not installed")
    done.stderr = " ".join(done.stderr.split())
    return done


def running_files() -> list[Path]:
    """The files of RUNNING_CODE."""
    files = []
    for pattern in RUNNING_CODE:
        files += ROOT.glob(pattern)
    return files


def no_commit() -> str | None:
    """Why git knows no commit of this checkout, in its words; None if it does.

    It may not be a repository, be another user's, or lie in a repository of something else.
    """
    if not IS_CHECKOUT:
        return "only the package is installed"
    for question in (("rev-parse", "HEAD"), ("ls-files", "--error-unmatch", "baseline.py")):
        answer = git(*question)
        if answer.returncode:
            return answer.stderr
    return None


def commit() -> str:
    """HEAD's first 12 digits, with `-dirty` if the running code has changes that are not in it.

    Running code is RUNNING_CODE; a README is not. `unknown` if git cannot say: see `no_commit`.
    `ladder climb` measures a copy of the code: its file COMMIT has what this returned in the
    checkout.
    """
    copied = ROOT / "COMMIT"
    if copied.is_file():
        return copied.read_text("utf-8").strip()
    if no_commit():
        return "unknown"
    head = git("rev-parse", "--short=12", "HEAD")
    # With --glob-pathspecs git reads RUNNING_CODE as running_files() does: no * matches a slash.
    status = ("--glob-pathspecs", "status", "--porcelain", "--untracked-files=all")
    changes = git(*status, "--", *RUNNING_CODE)
    if changes.returncode:
        return "unknown"
    if changes.stdout:
        return head.stdout.strip() + "-dirty"
    return head.stdout.strip()
