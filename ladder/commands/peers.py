"""Time transformers' GPT-2 beside the rungs: what would you get with what you would pick instead?

    ladder peers [--steps N] [--data PATH]

GPT2LMHeadModel trained the usual fast way (bfloat16 autocast, SDPA, torch.compile, fused AdamW) and
plainly in FP32, baseline.py, rung 10 and the top script: the same B, T, corpus and steps, each run
a process of its own, interleaved in rounds as in `ladder climb`. The last line is how many times
the tokens per second of the compiled transformers model the top script trains.
"""

from importlib.util import find_spec

from ladder.commands.climb import add_run_arguments, new_folder, run_and_report
from ladder.commands.results import read_climb
from ladder.commands.scripts import all_scripts, peer_scripts
from ladder.errors import BadInput

add_arguments = add_run_arguments


def run(args) -> int:
    """The subcommand. Returns the exit status: 1 if there is no ratio, because a script failed."""
    if find_spec("transformers") is None:
        raise BadInput("transformers is not installed: pip install -e '.[peers]'")
    rungs = all_scripts()
    folder = new_folder(args, "peers", [*peer_scripts(), rungs[0], rungs[10], rungs[-1]])
    run_and_report(folder)
    _, (compiled, *_, top) = read_climb(folder)
    if failed := compiled.failure or top.failure:
        print(f"RATIO top/transformers unknown: {failed}")
        return 1
    print(f"RATIO top/transformers {top.total.ratio:.2f}")  # of the paired rounds
    return 0
