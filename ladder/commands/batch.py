"""What does a batch buy? Tokens per second and memory by batch size, for some rungs.

    ladder batch                       rungs 0, 3, 10 and the top
    ladder batch 5 10 --max-batch 8    only these, at B = 1, 2, 4 and 8

B = 1, 2, 4, … until memory is out, each run a process of its own, in rounds as in `ladder climb`,
whose --resume goes on with one that was stopped. Out of memory is a result: what needs more of it
is not tried. The default B of the rungs (or --batch-size) is tried too. What a rung gains at a B is
measured by `ladder climb` with --batch-size.
"""

from ladder import cli
from ladder.commands import climb, diff
from ladder.measure import process, rounds

WARMED_UP = 18  # steps of a run whose first six are warm-up; a large B needs them


def add_arguments(parser):
    which = diff.RUNGS.replace("all but candidates", "0, 3, 10 and the top")
    parser.add_argument("rungs", nargs="*", help=which)
    most = "the largest B (default: 16 on a CPU, else 256)"
    parser.add_argument("--max-batch", type=cli.positive, help=most)
    climb.add_run_arguments(parser)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    chosen = diff.select(args.rungs)
    asked = cli.parse_args(__doc__, process.given_flags(args, *rounds.PASSED_ON))
    args.batch_size = asked.batch_size  # among the flags in climb.json; each run overrides it
    if not args.rungs:
        rungs = climb.rungs_to_top(asked.device)
        chosen = [rungs[0], rungs[3], rungs[10], rungs[-1]]
    most = args.max_batch or (16 if asked.device.type == "cpu" else 256)
    sizes = {2**power for power in range(most.bit_length())}
    if asked.batch_size <= most:
        sizes.add(asked.batch_size)
    if asked.steps < WARMED_UP:
        print(
            f"note  of fewer than {WARMED_UP} steps less than six are warm-up: too few at a large B"
        )
    return climb.prepare_and_run(args, "batch", chosen, sorted(sizes))
