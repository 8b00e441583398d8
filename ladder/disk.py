"""The disk: folders for results, their locks, and atomic writes.

This module does not import torch.
"""

import errno
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from ladder.errors import UsageError

# A log of train.py or fsdp_run.py by its stem, with when it began, in UTC; it is beside the
# checkpoints too.
LOG_OF_A_RUN = re.compile(r"(?:\w+_run|train)-(\d{8}-\d{6}-\d{6})")


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


def write_atomic(path: Path, content: str | bytes | Callable) -> bool:
    """Write `content` to `path` atomically: to another file, flushed to disk and then renamed.

    `content` is text, bytes or an array, or a function that writes to the open binary file. What
    kill -9 leaves of that other file is replaced by the next write into the folder. Returns whether
    the file system can flush to disk: some cannot. Raises OSError, or what such a function
    raises.
    """
    flushed = True
    if isinstance(content, str):
        content = content.encode()
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


def read_or_empty(*path: str | Path) -> str:
    """The text of a file of Linux; empty if there is none that we may read."""
    with suppress(OSError):
        return Path(*path).read_text()
    return ""
