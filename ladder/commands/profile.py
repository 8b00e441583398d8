"""Where a training step's time goes: forward, backward, optimizer, and which
kernels.

  ladder profile 4         rung 04: its stages and its most expensive kernels
  ladder profile 0 3 5 --model gpt2 gpt2-medium
                           a row for each of three rungs at two sizes

Scripts run as they are, each in a process of its own. Steps wait for the device
after each stage, which costs a little time, and rungs do not take turns: which
one is faster, `ladder climb` says. The first step, in which torch.compile
works, stands apart. The last one runs under PyTorch's profiler. PyTorch's table
of it is shown, and its trace saved for https://ui.perfetto.dev.

`forward` is everything before loss.backward(), fetching and copying the batch
included; `optimizer` everything after it. All are medians, ± the standard
deviation of the steps.
"""

import json
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev

from rich.table import Table

from ladder.cli import MODELS, add_flags, at_least, given_flags, path
from ladder.disk import make_folder
from ladder.log import Log, read_log
from ladder.measure.notes import title_of
from ladder.measure.process import check_ended_well, start_python
from ladder.measure.scripts import A_RUNG, flags_to_measure, select
from ladder.measure.stages import STAGES, WARMUP_STEPS
from ladder.show.console import new_table, screen

PASSED_ON = ("batch_size", "seq_len", "seed", "device", "data")  # to the script


@dataclass
class Profile:
    """What was found of one rung at one size."""

    title: str
    log: Log
    times_ms: dict[str, list[float]]  # of each stage, by step: those of warm-up too
    kernels: str  # PyTorch's table


def add_arguments(parser: ArgumentParser):
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help=f"each {A_RUNG}; or a range")
    parser.add_argument(
        "--model", nargs="+", choices=MODELS, default=["gpt2"], help="sizes (default: gpt2, 124M)"
    )
    add_flags(parser, *PASSED_ON)
    parser.add_argument(
        "--steps",
        type=at_least(3),
        default=5,
        help="steps to time, after 3 for warm-up (default: 5)",
    )
    parser.add_argument("--out", type=path, help="new folder for results (default: runs/profile-…)")


def main(args: Namespace) -> int:
    """Profile each rung at each size, and print a table of all and the kernels of each. Returns 0.

    Raises UsageError if one of them fails.
    """
    scripts = select(args.rungs)
    folder = make_folder(args.out, "profile")
    flags = given_flags(args, *PASSED_ON)
    flags.append(f"--steps={WARMUP_STEPS + args.steps + 1}")
    profiles = []
    # A cache of its own: code compiled here is not what the scripts themselves run, because
    # kernels generated for the CPU are invisible to the profiler unless they announce it.
    with tempfile.TemporaryDirectory(prefix="ladder-profile-") as cache:
        for script in scripts:
            for model in args.model:
                # On stderr: what is printed begins with the result.
                said = f"profiling {script.stem}, {model}: {flags[-1]}, minutes on a CPU"
                print(said, file=sys.stderr, flush=True)
                out = folder / f"{script.stem}-{model}"
                profiles.append(profile(script, [*flags, f"--model={model}"], out, cache))
    console = screen()
    where = "{device}, T={T}".format(**profiles[0].log.run)
    console.say(f"Milliseconds on {where}: median ± standard deviation of {args.steps} steps")
    console.print(stage_table(profiles))
    for one in profiles:
        print(f"\n{one.title}, {one.log.run['model']}, a step under PyTorch's profiler:")
        print(one.kernels)
    print(f"traces, numbers and logs: {folder}")
    return 0


def profile(script: Path, flags: list[str], out: Path, cache: str) -> Profile:
    """Run a script in a process of its own: its log in `out`, its numbers and trace beside that.

    Raises UsageError if it fails.
    """
    flags = [*flags, *flags_to_measure(script.name), f"--log-dir={out}"]
    env = dict(TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE="1", TORCHINDUCTOR_CACHE_DIR=cache)
    done = start_python("-m", "ladder.measure.stages", out, script, *flags, **env)
    check_ended_well(done)
    (log,) = out.glob("*.log")
    numbers = json.loads(Path(f"{out}.json").read_text("utf-8"))
    return Profile(title_of(script.stem), read_log(log), **numbers)


def stage_table(profiles: list[Profile]) -> Table:
    """A row for each profile: its first step, then each stage and the whole step."""
    table = new_table("rung", "model", "B", "first\nstep", *STAGES, "step")
    for one in profiles:
        cells = [one.log.run["model"], str(one.log.run["B"]), f"{one.times_ms['step'][0]:.0f}"]
        for stage in (*STAGES, "step"):
            ms = one.times_ms[stage][WARMUP_STEPS:]
            digits = 1 if median(ms) < 100 else 0
            cells.append(f"{median(ms):.{digits}f} ± {stdev(ms):.{digits}f}")
        table.add_row(one.title, *cells)
    return table
