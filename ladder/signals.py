"""Ctrl-C, SIGTERM and SIGHUP."""

import signal
import sys
from contextlib import contextmanager, suppress


class Signals:
    """Raises KeyboardInterrupt at each signal, but not in the middle of what the run writes.

    With `finish_step` the first signal raises nothing: the script looks at `first` after each step.
    A second Ctrl-C raises.
    """

    def __init__(self, rank: int):
        self.rank = rank
        self.first = 0  # number of the first signal; 0: there was none
        self.finish_step = False
        self.writing = False

    def arrive(self, number: int, _frame=None):
        """The handler of all signals."""
        second_ctrl_c = self.first and number == signal.SIGINT
        self.first = self.first or number
        if self.finish_step and not second_ctrl_c:
            if self.rank == 0:
                with suppress(OSError, RuntimeError):  # closed, or in the middle of a print
                    print("note  finishing this step; Ctrl-C stops at once", file=sys.stderr)
        elif not self.writing:
            raise KeyboardInterrupt

    @contextmanager
    def held(self):
        """What is written inside is written whole: a signal raises afterwards."""
        self.writing = True
        yield
        self.writing = False
        if self.first and not self.finish_step:
            raise KeyboardInterrupt


@contextmanager
def signals_to(handler):
    """Call handler(number, frame) on Ctrl-C, SIGTERM and SIGHUP (the terminal was closed) inside.

    A signal that is ignored, as under nohup, stays ignored.
    """
    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former or signal.SIG_DFL)
