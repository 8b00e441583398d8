"""The checkout on disk: its folder, its commit, and atomic writes.

This module does not import torch.
"""

import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import IO, BinaryIO

from ladder.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (ROOT / "baseline.py").exists()  # else only the package is installed
DATA_DIR = (ROOT if IS_CHECKOUT else Path.cwd()) / "data"
# The scripts and what they import or read (nothing in ladder/commands/), as git path patterns.
FOLDERS = ("candidates", "ladder", "peers", "speedups")
SCRIPTS = ("baseline.py", "ddp_run.py")  # outside these folders
RUNNING_CODE = (*SCRIPTS, "ladder/gpus.csv", *(f":(glob){name}/*.py" for name in FOLDERS))
COMMITTED = re.compile("[0-9a-f]{12}")  # what commit() returns where no change is uncommitted


def regular(path: Path, largest: float = math.inf) -> Path:
    """Return `path`. Raises BadInput if it is there but not a regular file: a FIFO may block; or if
    it has more than `largest` bytes."""
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is not a regular file")
    if path.exists() and path.stat().st_size > largest:
        raise BadInput(f"{path} is too large: over {largest:,.0f} bytes")
    return path


def lock(folder: Path) -> IO:
    """Lock `folder` until the returned file is closed. Only callers of `lock` respect the lock.

    It is also released when the process ends, in whatever way. Raises BadInput if another process
    holds it, OSError if the lock file cannot be written.
    """
    if (path := folder / ".lock").is_symlink():
        raise BadInput(f"{path} is a link to another file: delete it")
    file = regular(path).open("a")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BadInput(f"another run is at work in {folder}: wait, or choose another") from None
    except (ImportError, OSError):
        pass  # Windows, and file systems without locks
    return file


def drop(stream: IO) -> None:
    """Redirect a stream that can no longer be written, and what it still buffers, to os.devnull."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_whole(path: Path, *parts: bytes | Callable[[BinaryIO], None]) -> None:
    """Write `parts` to `path` atomically: to a temporary file beside it, which is then renamed.

    A part is bytes, or a function that takes the open file and writes to it. The data are flushed
    to disk before the rename. Raises OSError, or what such a function raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name[:50]}.{os.getpid()}.tmp")  # names: at most 255 bytes
    temporary.unlink(missing_ok=True)  # in /tmp it may be somebody's link to another file
    try:
        with temporary.open("x+b") as file:
            for part in parts:
                part(file) if callable(part) else file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)  # a script may be executable
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # that of a full disk has none
        raise


def git(*words: str) -> subprocess.CompletedProcess:
    """Run git in the checkout; the caller checks returncode. Raises BadInput if it cannot."""
    command, utf8 = ["git", "-C", str(ROOT)], dict(encoding="utf-8", errors="replace")
    command += ["--no-optional-locks", "-c", "log.showSignature=false", *words]
    # Inside a hook they name another repository, or its index; others change what a path means.
    env = {k: v for k, v in os.environ.items() if not re.match("GIT_(?!CONFIG|TEST)", k)}
    try:
        done = subprocess.run(command, capture_output=True, env=env, **utf8)
    except FileNotFoundError:
        raise BadInput("git is not installed: install it first") from None
    except OSError as error:
        raise BadInput(f"git does not start: {error.strerror}") from None
    done.stderr = " ".join(done.stderr.split())  # why it failed, in one line
    return done


def sha256(paths: Iterable[Path]) -> str:
    """SHA-256 of what these files hold, one after the other."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@cache
def note(line: str) -> None:
    """Print a note on stderr, once."""
    print(f"note  {line}", file=sys.stderr)


def commit() -> str:
    """Short hash of the last commit that changed the running code; `unknown`, with a note, if git
    cannot say, as where the checkout is another user's.

    `-dirty` is added if that code has uncommitted changes. A README is not running code: editing
    or committing one while scripts run does not change the result.
    """
    if not IS_CHECKOUT:
        return "unknown"
    try:
        last = git("log", "-1", "--format=%h", "--abbrev=12", "--", *RUNNING_CODE)
        new = ("--untracked-files=all", "--ignored")  # a global .gitignore may hide a rung
        changes = git("status", "--porcelain", *new, "--", *RUNNING_CODE)
        marked = git("ls-files", "-v", "--", *RUNNING_CODE)
        for answer in (last, changes, marked):
            if answer.returncode:
                raise BadInput(answer.stderr)
        for name in re.findall("^[a-zS] (.+)", marked.stdout, re.MULTILINE):
            if (ROOT / name).exists():  # else nothing of it runs, as in a sparse checkout
                undo = "git update-index --no-assume-unchanged (or --no-skip-worktree)"
                raise BadInput(f"{name} is marked as unchanged: {undo} {name}")
    except BadInput as error:
        note(f"git cannot say which commit this is: {error}")
        return "unknown"
    if not last.stdout:
        return "unknown"
    return last.stdout.strip() + "-dirty" * bool(changes.stdout)
