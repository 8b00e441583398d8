"""Ctrl-C, SIGTERM and SIGHUP."""

import signal
from contextlib import contextmanager


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
