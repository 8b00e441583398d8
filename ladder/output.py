"""Where the lines of a run go: the screen, its log, and a copy of the log beside checkpoints."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import IO

from ladder.text import printable


class Output:
    """Prints the lines of a run and writes them, flushed, to its logs.

    Only rank 0 has logs; of other ranks only errors are printed. On a full disk the run goes on
    with what it can still write, and `lost` is True. If nobody reads stdout any more (`| head`),
    the run ends as after SIGTERM, and its log has RESULT.
    """

    def __init__(self, rank: int):
        self.rank = rank
        self.logs = []
        self.lost = False

    def open_log(self, folder: Path, name: str):
        """Begin a log in `folder`. Raises OSError."""
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            self.logs.append((folder / name).open("x", encoding="utf-8"))

    def copy_log(self, folder: Path | None):
        """Write the log to `folder` too, where `ladder report` finds it. Raises OSError."""
        if folder and self.rank == 0:
            log = Path(self.logs[0].name)
            copy = folder / log.name
            if not copy.exists():  # else --log-dir is this folder
                shutil.copyfile(log, copy)
                self.logs.append(copy.open("a", encoding="utf-8"))

    def close(self):
        for file in self.logs:
            file.close()

    def print(self, line: str):
        """Write one line to the logs and to stdout."""
        self.log(line)
        self.say(line)

    def error(self, line: str):
        """Write one line to the logs and to stderr, on all ranks."""
        self.log(f"error {line}")
        who = f"rank {self.rank}: " if self.rank else ""
        self._write(sys.stderr, f"{who}error {line}")

    def log(self, line: str):
        """Write one line to the logs alone."""
        for file in self.logs:
            self._write(file, line)

    def say(self, line: str):
        """Write one line to stdout alone."""
        if self.rank == 0:
            self._write(sys.stdout, line)

    def _write(self, file: IO, line: str):
        try:
            print(printable(line), file=file, flush=True)
        except BrokenPipeError:
            silence(file)
            # Not SIGINT: after Ctrl-C, which ends `| tee` too, that would be a second one.
            signal.raise_signal(signal.SIGTERM)
        except OSError as error:
            silence(file)
            self.lost = True
            self.error(f"cannot write {file.name}: {error.strerror}: the run goes on without it")


def silence(stream: IO):
    """Send what a broken stream still buffers, and all that follows, to os.devnull."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
