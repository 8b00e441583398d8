"""The console that tables are printed on, and what all of them look like."""

import os
import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table


class Screen(Console):
    """A console that raises BrokenPipeError, as print does; rich's exits with status 1."""

    def on_broken_pipe(self):
        raise  # the BrokenPipeError that rich caught

    def say(self, line: str):
        """Print a sentence: wrapped between words on a terminal, elsewhere one line."""
        self.print(line, soft_wrap=not self.is_terminal)


def screen() -> Console:
    """The console of all commands. A file or a pipe is as wide as COLUMNS says, else 160: it has no
    edge to wrap at.

    Names of files and kernels may hold [what] reads like markup, or like an emoji (:b:).
    """
    width = None
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        width = 160
    return Screen(highlight=False, markup=False, emoji=False, width=width)


def new_table(first: str, *others: str) -> Table:
    """A table narrow enough for 80 columns, all columns but the first to the right."""
    right = [Column(heading, justify="right") for heading in others]
    return Table(first, *right, box=SIMPLE_HEAD, padding=0, pad_edge=False)
