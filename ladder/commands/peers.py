"""Time transformers' GPT-2 beside the rungs: what would you get with what you would pick instead?

    ladder peers [--steps N] [--data PATH]

GPT2LMHeadModel trained the usual fast way (bfloat16 autocast, SDPA, torch.compile, fused AdamW) and
plainly in FP32, baseline.py, rung 10 and the top rung of this device: the same B, T, corpus and
steps, each run a process of its own, interleaved in rounds as in `ladder climb`.
"""

from importlib.util import find_spec

from ladder.cli import pick_device
from ladder.commands.climb import add_run_arguments, prepare_and_run, rungs_to_top
from ladder.errors import BadInput
from ladder.measure.scripts import peer_scripts

add_arguments = add_run_arguments


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if find_spec("transformers") is None:
        raise BadInput("transformers is not installed: pip install -e '.[peers]'")
    rungs = rungs_to_top(pick_device(args.device))
    return prepare_and_run(args, "peers", [*peer_scripts(), rungs[0], rungs[10], rungs[-1]])
