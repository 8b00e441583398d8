"""Where a training step's time goes: forward, backward, optimizer, and which
kernels.

  ladder profile 4         rung 04: its stages and its most expensive kernels
  ladder profile 4 5       rungs 04 and 05 side by side

The script runs as it is, in a process of its own. Its steps wait for the device
after each stage, which costs a little time, and two rungs do not take turns:
which one is faster, `ladder climb` says. The first step, in which torch.compile
works, stands apart. The last one runs under PyTorch's profiler. PyTorch's table
of it is shown, and its trace saved for https://ui.perfetto.dev.

`forward` is everything before loss.backward(), fetching and copying the batch
included; `optimizer` everything after it.
"""

import json
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from statistics import median

from rich.table import Table

from ladder.cli import add_flags, at_least, path
from ladder.disk import make_folder
from ladder.errors import UsageError
from ladder.log import read_log
from ladder.measure.process import check_ended_well, given_flags, start_python
from ladder.measure.scripts import A_RUNG, flags_to_measure, select
from ladder.measure.stages import STAGES, WARMUP_STEPS
from ladder.show.console import new_table, screen
from ladder.show.tables import titles

PASSED_ON = ("model", "batch_size", "seq_len", "seed", "device", "data")  # to the script


def add_arguments(parser: ArgumentParser):
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help=f"one or two: {A_RUNG}")
    add_flags(parser, *PASSED_ON)
    parser.add_argument(
        "--steps",
        type=at_least(3),
        default=5,
        help="steps to time, after 3 for warm-up (default: 5)",
    )
    parser.add_argument("--out", type=path, help="new folder for results (default: runs/profile-…)")


def main(args: Namespace) -> int:
    """Profile one or two rungs, each in a process of its own, and print their tables. Returns 0."""
    scripts = select(args.rungs)
    if len(scripts) > 2:
        raise UsageError("give one rung or two")
    folder = make_folder(args.out, "profile")
    flags = given_flags(args, *PASSED_ON)
    steps = WARMUP_STEPS + args.steps + 1
    profiles = {}
    # A cache of its own: code compiled here is not what the scripts themselves run, because
    # kernels generated for the CPU are invisible to the profiler unless they announce it.
    with tempfile.TemporaryDirectory(prefix="ladder-profile-") as cache:
        env = dict(TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE="1", TORCHINDUCTOR_CACHE_DIR=cache)
        for path in scripts:
            # On stderr: what is printed begins with the result.
            print(
                f"profiling {path.stem}: {steps} steps, minutes on a CPU",
                file=sys.stderr,
                flush=True,
            )
            words = [folder / path.stem, path, *flags, *flags_to_measure(path.name)]
            words += [f"--steps={steps}", f"--log-dir={folder}"]
            done = start_python("-m", "ladder.measure.stages", *words, **env)
            check_ended_well(done)
            name = titles().get(path.stem, path.stem)
            profiles[name] = json.loads((folder / f"{path.stem}.json").read_text("utf-8"))
    (log, *_) = folder.glob("*.log")
    console = screen()
    for name, one in profiles.items():
        console.say(summary(name, one["times_ms"]))
    where = "{device}, {model}, B={B}, T={T}".format(**read_log(log).run)
    console.say(f"Milliseconds on {where}: first step, median and range of {args.steps} steps")
    console.print(stage_table(profiles))
    for name, one in profiles.items():
        print(f"\n{name}, a step under PyTorch's profiler:\n{one['kernels']}")
    print(f"traces, numbers and logs: {folder}")
    return 0


def summary(name: str, times: dict[str, list[float]]) -> str:
    """What a step of a rung takes, and which stage is the longest."""
    medians = {stage: median(ms[WARMUP_STEPS:]) for stage, ms in times.items()}
    longest = max(STAGES, key=medians.get)
    return (
        f"{name} takes {medians['step']:.1f} ms a step; its longest stage is {longest}, "
        f"{medians[longest]:.1f} ms"
    )


def stage_table(profiles: dict[str, dict]) -> Table:
    """A row for each stage and the whole step, two columns for each rung."""
    heads = []
    for name in profiles:
        heads += ["first\nstep", f"{name}\nmedian (range)"]
    table = new_table("", *heads)
    for stage in (*STAGES, "step"):
        cells = []
        for one in profiles.values():
            ms = one["times_ms"][stage]
            times = ms[WARMUP_STEPS:]
            spread = f"({min(times):.1f}–{max(times):.1f})"
            cells += [f"{ms[0]:.1f}", f"{median(times):.1f} {spread}"]
        table.add_row(stage, *cells)
    return table
