"""Where a training step's time goes: forward, backward, optimizer, and which
kernels.

  ladder profile 4         rung 04: its stages and its most expensive kernels
  ladder profile 4 5       rungs 04 and 05 side by side

The script runs as it is, in a process of its own. Its first step is timed in
stages: nothing has warmed up, and torch.compile works in it. After two more it
alternates an untouched step and a step timed in stages, which waits for the
device after each stage. The last one runs under PyTorch's profiler. PyTorch's
table of it is shown, and its trace saved for https://ui.perfetto.dev.

`forward` is everything before loss.backward(), fetching and copying the batch
included; `optimizer` everything after it.
"""

import json
import runpy
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
from rich.table import Table
from torch.profiler import profile

from ladder.cli import add_flags, at_least
from ladder.errors import UsageError
from ladder.files import make_folder, write_atomic
from ladder.log import read_log
from ladder.measure.process import given_flags, run_python
from ladder.measure.scripts import A_RUNG, select
from ladder.run import Run
from ladder.show.console import new_table, screen
from ladder.show.tables import titles

WARMUP_STEPS = 3
STAGES = ("forward", "backward", "optimizer")
ALONE = "step left alone"
PASSED_ON = ("model", "batch_size", "seq_len", "seed", "device", "data")  # to the script


class Watch:
    """Times some steps of a run in stages, profiles the last one, and saves what it found.

    It takes the place of Run's own watcher, which calls begin() and end() around each step.
    """

    def __init__(self, run: Run):
        self.run = run
        self.stages = None  # milliseconds of the step under way, if it is timed in stages
        self.profiler = None  # of the step under way
        self.first = None  # the stages of the first step, which nothing has warmed up
        self.times = defaultdict(list)  # of later steps, by the rows of the table
        original = torch.Tensor.backward

        def backward(*args, **options):
            self.lap("forward")
            original(*args, **options)
            self.lap("backward")

        torch.Tensor.backward = backward

    def lap(self, stage: str):
        """Add the time since the last lap to this stage. Several backwards add up."""
        if self.stages is None:
            return
        device = self.run.args.device
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        now = time.perf_counter()
        self.stages[stage] += (now - self.mark) * 1e3
        self.mark = now

    def begin(self):
        """A step begins: the script reads its clock next."""
        done = len(self.run.times)
        if self.run.steps_left == 1:
            self.profiler = profile()
            self.profiler.start()
        elif done == 0 or (done >= WARMUP_STEPS and (done - WARMUP_STEPS) % 2):
            self.stages = defaultdict(float)
            self.mark = time.perf_counter()

    def end(self, dt: float):
        """The step is done, in `dt` seconds."""
        done = len(self.run.times)
        stages = self.stages
        self.stages = None
        if stages is not None:
            stages["optimizer"] = dt * 1e3 - sum(stages.values())
            stages["sum"] = dt * 1e3
            self.first = self.first or stages
            if done > 1:
                for stage, ms in stages.items():
                    self.times[stage].append(ms)
        elif self.profiler is not None:
            self.profiler.stop()
            self._save()
            self.profiler = None
        elif done > WARMUP_STEPS:
            self.times[ALONE].append(dt * 1e3)

    def _save(self):
        """Write STEM.json and STEM.trace.json beside the log."""
        name = f"{self.run.args.log_dir}/{self.run.path.stem}"
        self.profiler.export_chrome_trace(f"{name}.trace.json")
        where = "cuda" if self.run.args.device.type == "cuda" else "cpu"
        kernels = self.profiler.key_averages().table(
            sort_by=f"self_{where}_time_total", row_limit=10, max_name_column_width=50
        )
        found = {"first_ms": self.first, "times_ms": self.times, "kernels": kernels}
        write_atomic(Path(f"{name}.json"), json.dumps(found, indent=1).encode() + b"\n")


def add_arguments(parser):
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help=f"one or two: {A_RUNG}")
    add_flags(parser, *PASSED_ON)
    steps = "steps left alone, and as many in stages (default: 5)"
    parser.add_argument("--steps", type=at_least(3), default=5, help=steps)
    parser.add_argument("--out", help="new folder for the results (default: runs/profile-…)")


def run(args) -> int:
    """Profile one or two rungs, each in a process of its own, and print their tables. Returns 0."""
    scripts = select(args.rungs)
    if len(scripts) > 2 or len({path.stem for path in scripts}) < len(scripts):
        raise UsageError("give one rung, or two of different names")
    folder = make_folder(args.out, "profile")
    steps = WARMUP_STEPS + 2 * args.steps + 1
    flags = [*given_flags(args, *PASSED_ON), f"--steps={steps}", f"--log-dir={folder}"]
    # A cache of its own: code compiled here is not what the scripts themselves run, because
    # kernels generated for the CPU are invisible to the profiler unless they announce it.
    with tempfile.TemporaryDirectory(prefix="ladder-profile-") as cache:
        env = dict(TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE="1", TORCHINDUCTOR_CACHE_DIR=cache)
        for path in scripts:
            # On stderr: what is printed begins with the result.
            line = f"profiling {path.stem}: {steps} steps, minutes on a CPU"
            print(line, file=sys.stderr, flush=True)
            done = run_python("-m", "ladder.commands.profile", path, *flags, **env)
            if done.failure:
                raise UsageError(f"{path.name} failed: {done.failure}")
    profiles = {}
    for path in scripts:
        name = titles().get(path.stem, path.stem)
        profiles[name] = json.loads((folder / f"{path.stem}.json").read_text())
    (log, *_) = folder.glob("*.log")
    console = screen()
    console.say(verdict(profiles))
    console.say(
        "Milliseconds a step on {device}, {model}, B={B}, T={T}".format(**read_log(log).run)
    )
    console.print(stage_table(profiles))
    console.say(
        f"Median and range of {args.steps} steps after {WARMUP_STEPS} for warm-up. Steps timed in "
        "stages wait for the device in between: compare their sum with the step left alone."
    )
    for name, one in profiles.items():
        print(f"\n{name}, a step under PyTorch's profiler:\n{one['kernels']}")
    print(f"traces, numbers and logs: {folder}")
    return 0


def verdict(profiles: dict[str, dict]) -> str:
    """What a step takes, whether the second rung of two is faster, and which stage is longest."""
    *before, (name, after) = profiles.items()
    medians = {row: statistics.median(times) for row, times in after["times_ms"].items()}
    said = f"{name} takes {milliseconds(medians[ALONE])} ms a step"
    for former, one in before:
        times = one["times_ms"][ALONE]
        median = statistics.median(times)
        faster = "not clearly faster"
        if max(after["times_ms"][ALONE]) < min(times):
            faster = f"{median / medians[ALONE]:.2f} times as fast"
        said += f", {former} {milliseconds(median)}: it is {faster}"
    longest = max(STAGES, key=medians.get)
    return f"{said}; the longest stage is {longest}, {milliseconds(medians[longest])} ms."


def milliseconds(value: float) -> str:
    """Three digits, but no fewer than stand before the point."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def stage_table(profiles: dict[str, dict]) -> Table:
    """Stages, their sum and the untouched step; for two rungs what the later one changes."""
    table = new_table("")
    for name in profiles:
        table.add_column("first\nstep", justify="right")
        table.add_column(f"{name}\nmedian (range)", justify="right")
    if len(profiles) == 2:
        table.add_column("\nchange", justify="right")
    for row in (*STAGES, "sum", ALONE):
        cells = []
        medians = []
        for one in profiles.values():
            times = one["times_ms"][row]
            median = statistics.median(times)
            medians.append(median)
            spread = f"{milliseconds(min(times))}–{milliseconds(max(times))}"
            first = one["first_ms"].get(row)
            cells.append(milliseconds(first) if first else "")
            cells.append(f"{milliseconds(median)} ({spread})")
        if len(medians) == 2:
            change = medians[1] - medians[0]
            cells.append(("+" if change > 0 else "") + milliseconds(change))
        table.add_row(row, *cells)
    return table


if __name__ == "__main__":
    Run.watcher = Watch
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
