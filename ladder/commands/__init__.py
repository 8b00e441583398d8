"""The `ladder` command: climb the rungs, compare them, look into one."""

import argparse
import importlib
import sys
from collections.abc import Callable

from ladder.cli import signals_to
from ladder.commands.process import if_slow, once
from ladder.errors import BadInput, explain
from ladder.files import IS_CHECKOUT, drop
from ladder.log import printable

# Each is a module of this package with a docstring, add_arguments(parser) and run(args) -> status.
COMMANDS = {
    "climb": "run rungs interleaved, several times, and say what each one gains here",
    "diff": "show the one change of a rung, or the changes between any two",
    "ablate": "take single optimisations back from the top rung and measure what that costs",
    "peers": "time transformers' GPT-2 beside the baseline, rung 10 and the top",
    "profile": "where a step's time goes: forward, backward, optimizer, top kernels",
    "timeit": "timing matrix: model sizes x passes x warm-up x precision",
    "roofline": "the bare parts of a step, each beside its bytes and FLOPs",
    "fit": "the largest batch that fits the device, for each rung, and its tokens per second",
    "limits": "the work of each rung, counted, and its time at a GPU's data sheet",
    "doctor": "what this machine is, and which rungs can run or help here",
    "sample": "write text with a model that ddp_run.py trained",
    "export": "make a folder of such a model that transformers loads",
    "forward": "carry an edit of one rung through all later rungs",
    "report": "climbs as one HTML page to look at: charts, diffs, losses, logs",
    "share": "pack a climb into one small file to send, without paths and names",
    "publish": "put a finished climb into logs/, RUNLOG.md and README.md",
}


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status, 2 for what a user can put right."""
    commands = "\n".join(f"  {name:9s}{summary}" for name, summary in COMMANDS.items())
    text = f"{__doc__}\n\ncommands:\n{commands}"
    raw = dict(formatter_class=argparse.RawDescriptionHelpFormatter)
    usage = "ladder COMMAND [-h] ..."
    parser = argparse.ArgumentParser(prog="ladder", usage=usage, description=text, **raw)
    parser.add_argument("command", choices=COMMANDS, help=argparse.SUPPRESS)
    argv = sys.argv[1:] if argv is None else argv
    name = parser.parse_args(argv[:1]).command

    def run() -> int:
        if not IS_CHECKOUT:
            raise BadInput(
                "`ladder` works on the scripts, which are not here: clone the repository, and "
                "`pip install -e .` in it"
            )
        with if_slow():
            module = importlib.import_module(f"ladder.commands.{name}")
        parser = argparse.ArgumentParser(prog=f"ladder {name}", description=module.__doc__, **raw)
        module.add_arguments(parser)
        return module.run(parser.parse_args(argv[1:]))

    return program(run)


def program(function: Callable, *args) -> int:
    """function(*args) as a program: its exit status, which is 2 after one line of what was wrong.

    What the terminal cannot show is printed escaped; a pipe gets each line at once.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        with signals_to(once()):  # the second does not interrupt what the first has to save
            status = function(*args)
            print(end="", flush=True)  # a full device shows here and not as the process ends
            return status or 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        where = error.filename and f"{error.filename}: "
        try:
            print(end="", flush=True)
        except OSError:
            drop(sys.stdout)
            where = where or "standard output: "
        if isinstance(error, BrokenPipeError):  # nobody reads any more: like Ctrl-C
            return 130
        line = f"{where or ''}{error.strerror or error}"
    except Exception as error:
        if (line := explain(error)) is None:  # a bug: its traceback says where
            raise
    try:
        print(f"error {printable(line)}", file=sys.stderr)
    except OSError:  # as of a terminal that was closed
        drop(sys.stderr)
    return 2
