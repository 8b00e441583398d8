"""The checkout on disk: its folder, its commit, folders for results, and atomic writes.

This module does not import torch.
"""

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable
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
# A log of ddp_run.py or fsdp_run.py by its stem, with when it began, in UTC; it is beside the
# checkpoints too.
LOG_OF_A_RUN = re.compile(r"\w+_run-(\d{8}-\d{6}-\d{6})")


def require_own(path: Path):
    """Raise UsageError if `path` is in another checkout than this package, or none is here.

    A climb's copy of the code counts as a checkout.
    """
    path = path.resolve()
    for folder in (path, *path.parents):
        if folder == ROOT:
            break
        if (folder / "baseline.py").exists() and (folder / "ladder").is_dir():
            whose = f"{path} is in the checkout {folder}, but this `ladder` is that of {ROOT}"
            how = f"PYTHONPATH={folder} runs its own; or `pip install -e {folder}`"
            raise UsageError(f"{whose}: {how}")
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


def silence(stream: IO):
    """Send what a broken stream still buffers, and all that follows, to os.devnull."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def make_folder(name: str | Path | None, what: str) -> Path:
    """Make a folder for results, `name` or runs/WHAT-DATE-TIME, and return it.

    Raises OSError if `name` is there.
    """
    while True:
        folder = Path(name or f"runs/{what}-{datetime.now():%Y%m%d-%H%M%S}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            if name:
                raise
            time.sleep(0.1)  # another began in this second: the name of the next one is free


def runs_by_time() -> dict[str, Path]:
    """The folders in checkpoints/ by when their newest log began, the newest run last.

    By no file's time: it may be that of a copy. Of a run and a copy of it the first by name counts.
    """
    found = {}
    for path in sorted(Path("checkpoints").glob("*/*.log")):
        log = LOG_OF_A_RUN.fullmatch(path.stem)
        if log:
            found.setdefault(log[1], path.parent)
    return dict(sorted(found.items()))


def write_atomic(path: Path, content: bytes | Callable[[IO], object]) -> bool:
    """Write `content` to `path` atomically: to another file, flushed to disk and then renamed.

    `content` is bytes or an array, or a function that writes to the open binary file. What kill -9
    leaves of that other file is replaced by the next write into the folder. Returns whether the
    file system can flush to disk: some cannot. Raises OSError, or what such a function raises.
    """
    flushed = True
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name("unfinished.tmp")
    try:
        with temporary.open("w+b") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            try:
                os.fsync(file.fileno())
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
                flushed = False
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # As torch.save closes the file, its own error hides the real one: a full disk, Ctrl-C.
        if isinstance(error, RuntimeError):
            error = error.__context__ or error
        if isinstance(error, OSError):
            error.filename = str(path)  # the error of a full disk names no file
        raise error from None
    return flushed


def git(*arguments: str) -> subprocess.CompletedProcess:
    """Run git in the checkout; the caller checks returncode. `stderr` says why in one line."""
    command = ["git", "-C", str(ROOT), "--no-optional-locks", *arguments]
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # of a hook, or of dotfiles
        os.environ.pop(name, None)
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", "git is not installed")
    done.stderr = " ".join(done.stderr.split())
    return done


def running_files() -> list[Path]:
    """The files of RUNNING_CODE."""
    return [path for pattern in RUNNING_CODE for path in ROOT.glob(pattern)]


def no_commit() -> str:
    """Why git knows no commit of this checkout, in its words; empty if it does.

    It may not be a repository, be another user's, or lie in a repository of something else.
    """
    answer = git("ls-files", "--error-unmatch", "baseline.py")
    return answer.stderr if answer.returncode else ""


def commit() -> str:
    """HEAD's first 12 digits, with `-dirty` if the running code has changes that are not in it.

    Running code is RUNNING_CODE; a README is not. `unknown` if git cannot say: see `no_commit`.
    `ladder climb` measures a copy of the code: its file COMMIT has what this returned in the
    checkout.
    """
    copied = ROOT / "COMMIT"
    if copied.exists():
        return copied.read_text("utf-8").strip()
    if no_commit():
        return "unknown"
    head = git("rev-parse", "--short=12", "HEAD").stdout.strip()
    return f"{head}-dirty" if changed() else head


def changed() -> list[str]:
    """The files of the running code whose content git's HEAD does not have."""
    # With --glob-pathspecs git reads RUNNING_CODE as running_files() does: no * matches a slash.
    # Not their modes, which network drives and copies change.
    as_ours = ("--glob-pathspecs", "-c", "core.fileMode=false")
    status = git(*as_ours, "status", "--porcelain", "--untracked-files=all", "--", *RUNNING_CODE)
    return [line[3:] for line in status.stdout.splitlines()]
