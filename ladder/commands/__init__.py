"""The `ladder` command: climb the rungs, compare them, look into one."""

import argparse
import importlib
import sys

from ladder.errors import BadInput

# Each is a module of this package with a docstring, add_arguments(parser) and run(args) -> status.
COMMANDS = {
    "climb": "run rungs interleaved, several times, and say what each one gains here",
    "diff": "show the one change of a rung, or the changes between any two",
    "ablate": "take single optimisations back from the top rung and measure what that costs",
    "peers": "time transformers' GPT-2 beside the baseline, rung 10 and the top",
    "profile": "where a step's time goes: forward, backward, optimizer, top kernels",
    "timeit": "timing matrix: model sizes x passes x warm-up x precision",
    "fit": "the largest batch that fits the device, for each rung, and its tokens per second",
    "limits": "the work of every rung, counted, and the time a GPU cannot beat",
    "doctor": "what this machine is, and which rungs can run or help here",
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
    module = importlib.import_module(f"ladder.commands.{name}")
    parser = argparse.ArgumentParser(prog=f"ladder {name}", description=module.__doc__, **raw)
    module.add_arguments(parser)
    try:
        return module.run(parser.parse_args(argv[1:]))
    except BadInput as error:
        print(f"error {error}", file=sys.stderr)
        return 2
