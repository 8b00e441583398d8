"""The checkout on disk: where it is, which commit it is, and files that are whole or not there.

No torch is needed here.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO

from ladder.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (ROOT / "baseline.py").exists()  # else only the package is installed
DATA_DIR = (ROOT if IS_CHECKOUT else Path.cwd()) / "data"
# The scripts and what they import, which ladder/commands/ is not, as git's path patterns.
FOLDERS = ("candidates", "ladder", "peers", "speedups")
RUNNING_CODE = ("baseline.py", "ddp_run.py", *(f":(glob){name}/*.py" for name in FOLDERS))


def regular(path: Path) -> Path:
    """`path`, if it is a regular file or nothing. Raises BadInput: a FIFO may wait for ever."""
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is not a regular file")
    return path


def lock(folder: Path) -> IO:
    """Keep out of `folder` all other processes that ask, until what is returned is closed.

    A process that ends, however it ends, lets go. Raises BadInput if another is in it, OSError if
    it cannot be written.
    """
    file = regular(folder / ".lock").open("a")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BadInput(f"another run is at work in {folder}: wait, or choose another") from None
    except (ImportError, OSError):
        pass  # Windows, and file systems that have no locks
    return file


def drop(stream: IO) -> None:
    """Send a stream that cannot be written any more, and what it still holds, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_whole(path: Path, *parts: bytes | Callable[[BinaryIO], None]) -> None:
    """Write `parts` to a temporary name beside `path`, then rename: never half a file.

    A part is bytes, or a function that writes to the file it gets. All of it is on the disk before
    the name is. Raises OSError, and what such a function raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name[:50]}.{os.getpid()}.tmp")  # names end at 255 bytes
    try:
        with temporary.open("w+b") as file:
            for part in parts:
                part(file) if callable(part) else file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def git(*words: str) -> subprocess.CompletedProcess:
    """Run git in the checkout; the caller looks at returncode. Raises BadInput without git."""
    command = ["git", "-C", str(ROOT), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    except OSError:
        raise BadInput("git is not installed: install it first") from None


def commit() -> str:
    """Short hash of the last commit that changed the running code; `unknown` without git.

    `-dirty` is added if that code has changes that are not committed. A README is not running code:
    to edit or commit one while scripts run changes nothing of what they are.
    """
    if not IS_CHECKOUT:
        return "unknown"
    questions = (
        ("log", "-1", "--format=%h", "--abbrev=12", "--", *RUNNING_CODE),
        ("status", "--porcelain", "--", *RUNNING_CODE),
    )
    try:
        answers = [git(*words) for words in questions]
    except BadInput:
        return "unknown"
    if any(answer.returncode for answer in answers):
        return "unknown"
    last, changes = (answer.stdout.strip() for answer in answers)
    return f"{last or 'unknown'}{'-dirty' if last and changes else ''}"
