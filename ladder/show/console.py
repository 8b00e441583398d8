"""The console that tables are printed on."""

import os
import sys

from rich.console import Console


class Screen(Console):
    """A console that raises BrokenPipeError, as print does; rich's exits with status 1."""

    def on_broken_pipe(self):
        raise  # the BrokenPipeError that rich caught


def screen() -> Console:
    """The console of all commands. A file or a pipe is as wide as COLUMNS says, else 160: it has no
    edge to wrap at.

    Names of files and kernels may hold [what] reads like markup.
    """
    width = None
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        width = 160
    return Screen(highlight=False, markup=False, width=width)
