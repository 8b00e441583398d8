"""The checkout on disk: where it is, which commit it is, and files that are whole or not there.

No torch is needed here.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ladder.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
DATA_DIR = ROOT / "data"


def write_whole(path: Path, *parts: bytes | Callable[[BinaryIO], None]) -> None:
    """Write `parts` to a temporary name beside `path`, then rename: never half a file.

    A part is bytes, or a function that writes to the file it gets. All of it is on the disk before
    the name is. Raises OSError, and what such a function raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
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
    """Short hash of the checkout, `-dirty` if a tracked file was changed or a script is untracked.

    `unknown` without git.
    """
    questions = (
        ("rev-parse", "--short=12", "HEAD"),
        ("status", "--porcelain", "--untracked-files=no"),
        ("status", "--porcelain", "--", "ladder/*.py", "peers/*.py", "speedups/*.py"),
    )
    try:
        answers = [git(*words) for words in questions]
    except BadInput:
        return "unknown"
    if any(answer.returncode for answer in answers):
        return "unknown"
    head, *changes = (answer.stdout.strip() for answer in answers)
    return head + ("-dirty" if any(changes) else "")
