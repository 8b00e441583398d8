"""Ctrl-C, SIGTERM and SIGHUP."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Signals:
    """The first signal ends a run after its step, a second Ctrl-C at once: KeyboardInterrupt.

    Until the first step is done, which may compile for minutes, the first signal ends it at once.
    """

    def __init__(self, rank: int):
        self.rank = rank
        self.first = 0  # number of the first signal; 0: there was none
        self.at_once = True  # until the first step is done
        self.writing = False

    def arrive(self, number: int, _frame: object):
        """The handler of all signals."""
        if self.first and number == signal.SIGINT:
            self.at_once = True
        is_first = not self.first
        self.first = self.first or number
        if self.at_once and not self.writing:
            raise KeyboardInterrupt
        if self.rank == 0 and is_first and not self.at_once:
            with suppress(OSError, RuntimeError):  # closed, or in the middle of a print
                print(
                    "note  the run ends after this step; a second Ctrl-C ends it at once",
                    file=sys.stderr,
                )

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is written inside is written whole: a signal that is to end the run raises after."""
        self.writing = True
        yield
        self.writing = False
        if self.first and self.at_once:
            raise KeyboardInterrupt


@contextmanager
def signals_to(handler: Callable) -> Iterator[None]:
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
