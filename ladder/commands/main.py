"""The `ladder` command: climb the rungs, compare them, look into one."""

import importlib
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ladder.checkout import require_own
from ladder.cli import Parser
from ladder.errors import UsageError, explain
from ladder.output import silence
from ladder.signals import signals_to
from ladder.text import printable

# Each is a module of this package with a docstring, add_arguments(parser) and main(args) -> status.
COMMANDS = {
    "climb": "run rungs interleaved, several times: what each one gains here",
    "diff": "show the one change of a rung, or the changes between any two",
    "profile": "where a step's time goes: forward, backward, optimizer, top kernels",
    "roofline": "the work of each rung, counted, and its time at a GPU's rates",
    "doctor": "what this machine is, and which rungs can run or help here",
    "report": "climbs or training runs as one HTML page: charts, diffs, logs",
    "sample": "write text with a model that train.py trained",
}


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status, 2 for what a user can put right."""
    return program(command, sys.argv[1:] if argv is None else argv)


def command(argv: list[str]) -> int:
    """Run the subcommand argv[0], with the other words as its flags."""
    name, *words = argv or ["--help"]
    if name in ("-h", "--help"):
        print(__doc__, "\nusage: ladder COMMAND [-h] …\n", sep="\n")
        for command_name, summary in COMMANDS.items():
            print(f"  {command_name:10s}{summary}")
        return 0
    require_own(Path.cwd())
    if name not in COMMANDS:
        raise UsageError(f"there is no command {name}: expected {', '.join(COMMANDS)}")
    module = importlib.import_module(f"ladder.commands.{name}")
    parser = Parser(module.__doc__, prog=f"ladder {name}")
    module.add_arguments(parser)
    return module.main(parser.parse_args(words))


def program(function: Callable, *args: object) -> int:
    """Run function(*args) as a program and return its exit status.

    It is 2 after one line that says what was wrong, and 128 plus its number after a signal. What
    the terminal cannot show is printed escaped; a pipe gets each line at once.
    """
    signals = []

    def interrupt(number: int, _frame: object):
        signals.append(number)
        if len(signals) == 1:  # a second one must not interrupt what the first has to save
            raise KeyboardInterrupt

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        with signals_to(interrupt):
            status = function(*args)
            print(end="", flush=True)  # a full device shows here and not as the process ends
            return status or 0
    except KeyboardInterrupt:
        number = signals[0] if signals else signal.SIGINT
        return 128 + number
    except BrokenPipeError:  # nobody reads any more: like Ctrl-C
        silence(sys.stdout)
        return 130
    except OSError as error:
        line = explain(error) or f"{error.filename}: {error.strerror}"
        if error.filename is None:  # of standard output, on a full device: it keeps what it holds
            silence(sys.stdout)
    except Exception as error:
        line = explain(error)
        if line is None:  # a bug: its traceback says where
            raise
    with suppress(OSError):  # of a terminal that was closed
        print(f"error {printable(line)}", file=sys.stderr)
    return 2
