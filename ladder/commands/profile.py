"""Where a training step's time goes: forward, backward, optimizer, and which
kernels.

  ladder profile 4         rung 04: its stages and its most expensive kernels
  ladder profile 4 5       rungs 04 and 05 side by side

The script runs as it is, in a process of its own. Its first step is timed in
stages: nothing has warmed up, and torch.compile works in it. After two more it
alternates an untouched step and a step timed in stages, which waits for the
device after each stage. Three more run under PyTorch's profiler. The middle
one, by the time of its kernels, is shown, and saved as a trace for
https://ui.perfetto.dev.

`forward` is everything before loss.backward(), fetching and copying the batch
included; `optimizer` everything after it. Kernels are what ran on a CUDA GPU;
elsewhere, operators (`aten::` is PyTorch's own library) and what torch.compile
generated, each without the time of those that it calls.
"""

import json
import re
import runpy
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.autograd import DeviceType
from torch.profiler import profile

import ladder.run
from ladder.cli import add_flags, at_least
from ladder.errors import UsageError
from ladder.files import make_folder, write_atomic
from ladder.machine import busy, load_average
from ladder.measure.process import given_flags, run_python
from ladder.measure.scripts import A_RUNG, select
from ladder.show.console import new_table, screen
from ladder.show.tables import titles

WARMUP_STEPS = 3
PROFILED_STEPS = 3
STAGES = ("forward", "backward", "optimizer")
TOP = 10
PASSED_ON = ("model", "batch_size", "seq_len", "seed", "device", "data")  # to the script


class ProfiledRun(ladder.run.Run):
    """A run that times some of its steps in stages, profiles the last ones and saves the results.

    A script calls log() after each step: there one step's watch ends and the next one's begins.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.watch = ExitStack()  # closed when the step under way is done
        self.spent = None  # the stages of that step, if it is timed in stages
        self.profiler = None  # its profiler, if it has one
        self.first = None  # the stages of the first step, which nothing has warmed up
        self.times = defaultdict(list)
        self.profiles = []

    def header(self, *args, **more):
        """The run line, as Run.header writes it. The first step's watch begins."""
        super().header(*args, **more)
        self.spent = self.watch.enter_context(timed_stages(self.args.device))

    def log(self, step, loss, dt, tok_per_s, **more):
        """One step line, as Run.log writes it."""
        self.watch.close()
        super().log(step, loss, dt, tok_per_s, **more)
        if self.spent is not None:
            self.spent["optimizer"] = dt * 1e3 - sum(self.spent.values())
            if step == 0:
                self.first = self.spent
            else:
                for stage in STAGES:
                    self.times[stage].append(self.spent[stage])
        elif self.profiler is not None:
            measured = kernels(self.profiler.events(), self.args.device)
            self.profiles.append((measured, self.profiler))
        elif step >= WARMUP_STEPS:
            self.times["step"].append(dt * 1e3)
        self.spent = None
        self.profiler = None
        left = self.args.steps - step - 1
        if left == 0:
            self._save()
        elif left <= PROFILED_STEPS:
            self.profiler = self.watch.enter_context(profile())
        elif step >= WARMUP_STEPS and (step - WARMUP_STEPS) % 2 == 0:
            self.spent = self.watch.enter_context(timed_stages(self.args.device))

    def _save(self):
        """Write STEM.json and STEM.trace.json beside the log."""
        self.profiles.sort(key=lambda pair: pair[0]["self_ms"])
        measured, profiler = self.profiles[PROFILED_STEPS // 2]
        name = f"{self.args.log_dir}/{Path(self.script).stem}"
        profiler.export_chrome_trace(f"{name}.trace.json")
        times = {"first_ms": self.first, "times_ms": self.times}
        result = {"run": self.settings, **times, **measured}
        write_atomic(Path(f"{name}.json"), json.dumps(result, indent=1).encode() + b"\n")


@contextmanager
def timed_stages(device: torch.device):
    """Yield a dict that gathers one step's milliseconds in `forward` and `backward`.

    Counts from here, just before the script reads its clock. Where backward is called several
    times, what lies between two calls is forward again.
    """
    spent = defaultdict(float)
    original = torch.Tensor.backward
    mark = time.perf_counter()

    def lap(stage):
        nonlocal mark
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        now = time.perf_counter()
        spent[stage] += (now - mark) * 1e3
        mark = now

    def backward(*args, **options):
        lap("forward")
        original(*args, **options)
        lap("backward")

    torch.Tensor.backward = backward
    try:
        yield spent
    finally:
        torch.Tensor.backward = original


def kernels(events, device: torch.device) -> dict:
    """The self time of one profiled step: of all events, and of each name, longest first.

    On CUDA also how many kernels were launched. Times are in milliseconds, of the GPU on CUDA,
    elsewhere of the CPU.
    """
    on_gpu = device.type == "cuda"
    self_time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    launched = 0
    calls = Counter()
    ms = Counter()
    for event in events:
        if on_gpu:
            if event.device_type != DeviceType.CUDA or event.is_user_annotation:
                continue
            if not event.name.startswith(("Memcpy", "Memset")):
                launched += 1
        calls[event.name] += 1
        ms[event.name] += getattr(event, self_time) / 1e3
    if on_gpu and not launched:
        raise UsageError(
            "PyTorch's profiler recorded no kernels on this GPU: another profiler may hold it, or "
            "only root may profile (see ERR_NVGPUCTRPERM in NVIDIA's documentation)"
        )
    total = ms.total()
    table = []
    for name, time_ms in ms.most_common():
        row = {"name": name, "calls": calls[name], "ms": time_ms, "share": time_ms / total}
        table.append(row)
    return {"kernels_launched": launched or None, "self_ms": total, "kernels": table}


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
    load = busy(load_average())
    if load:
        print(f"note  {load}", file=sys.stderr)
    steps = WARMUP_STEPS + 2 * args.steps + PROFILED_STEPS
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
    profiles = [json.loads((folder / f"{path.stem}.json").read_text()) for path in scripts]
    report(profiles, screen())
    print(f"traces, numbers and logs: {folder}")
    return 0


def report(profiles: list[dict], console: Console):
    """Print what one sees, stages and kernels of one profile, or of two side by side."""
    first = profiles[0]
    console.say(verdict(profiles))
    console.say("Milliseconds per step on {device}, {model}, B={B}, T={T}".format(**first["run"]))
    console.print(stage_table(profiles))
    console.say(
        f"Median and range of {len(first['times_ms']['step'])} steps after {WARMUP_STEPS} for"
        " warm-up. Stages are timed in steps that wait for the device in between, which adds a"
        " little: compare their sum with the step left alone. The self time is that of a step"
        " under the profiler, which slows it; far more than the step left alone means a busy"
        " machine.\n"
    )
    table = kernel_table(profiles, console.width)
    console.say(f"The {TOP} most expensive: self time and its share of all self time")
    console.print(table)


def verdict(profiles: list[dict]) -> str:
    """What a step takes, whether the second rung of two is faster, and which stage is longest."""
    after = profiles[-1]
    medians = {name: statistics.median(times) for name, times in after["times_ms"].items()}
    step = medians.pop("step")
    longest = max(medians, key=medians.get)
    said = f"{name_of(after)} takes {milliseconds(step)} ms a step"
    if len(profiles) == 2:
        before = profiles[0]["times_ms"]["step"]
        former = statistics.median(before)
        faster = "not clearly faster"
        if max(after["times_ms"]["step"]) < min(before):
            faster = f"{former / step:.2f} times as fast"
        said += f", {name_of(profiles[0])} {milliseconds(former)}: it is {faster}"
    return f"{said}; the longest stage is {longest}, {milliseconds(medians[longest])} ms."


def milliseconds(value: float) -> str:
    """Three digits, but no fewer than stand before the point."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def stage_table(profiles: list[dict]) -> Table:
    """Stages, their sum, the untouched step, the kernels; for two rungs what the change does."""
    table = new_table("")
    for one in profiles:
        table.add_column("first\nstep", justify="right")
        table.add_column(f"{name_of(one)}\nmedian (range)", justify="right")
    if len(profiles) == 2:
        table.add_column("\nchange", justify="right")
    columns = [stage_column(one) for one in profiles]
    for name in columns[0]:
        cells = []
        for one, column in zip(profiles, columns, strict=True):
            first = first_step(one["first_ms"], name)
            cells += [first, with_range(column[name])]
        if len(columns) == 2:
            before, after = [statistics.median(column[name]) for column in columns]
            sign = "+" if after > before else ""
            cells.append(sign + milliseconds(after - before))
        table.add_row(name, *cells)
    if profiles[0]["kernels_launched"]:
        cells = []
        for one in profiles:
            cells += ["", str(one["kernels_launched"])]
        table.add_row("kernels launched", *cells)
    return table


def stage_column(profile: dict) -> dict[str, list[float]]:
    """What stage_table says of one rung, by the names of the rows: milliseconds of each step."""
    times = profile["times_ms"]
    column = {stage: times[stage] for stage in STAGES}
    column["sum"] = [sum(step) for step in zip(*column.values(), strict=True)]
    column["step left alone"] = times["step"]
    column["self time"] = [profile["self_ms"]]
    return column


def first_step(stages: dict[str, float], name: str) -> str:
    """What the row of this name says of the first step: it has stages and their sum."""
    if name == "sum":
        return milliseconds(sum(stages.values()))
    return milliseconds(stages[name]) if name in stages else ""


def with_range(times: list[float]) -> str:
    """The median of these milliseconds, and their range."""
    text = milliseconds(statistics.median(times))
    if len(times) > 1:
        text += f" ({milliseconds(min(times))}–{milliseconds(max(times))})"
    return text


def kernel_table(profiles: list[dict], width: int) -> Table:
    """The most expensive kernels of the rungs, longest first; a dash where a rung has no such."""
    table = new_table("kernel")
    longest = Counter()  # of each name, its milliseconds in the rung that takes more
    cells = []  # of each rung, by name
    for one in profiles:
        table.add_column(f"{name_of(one)}\nms  share calls", justify="right", width=21)
        cells.append({})
        for kernel in one["kernels"]:
            name = kernel["name"]
            longest[name] = max(kernel["ms"], longest[name])
            cells[-1][name] = "{ms:.2f} {share:6.1%} {calls:5d}".format(**kernel)
    for name, _ in longest.most_common(TOP):
        own = [by_name.get(name, "–") for by_name in cells]
        table.add_row(short(name, max(20, width - 2 - 22 * len(profiles))), *own)
    return table


def name_of(profile: dict) -> str:
    """The title of the script, or its file name if it is from outside."""
    stem = Path(profile["run"]["script"]).stem
    return titles().get(stem, stem)


def short(name: str, width: int) -> str:
    """A kernel's name without what many have, cut in the middle: its end tells it from others."""
    name = re.sub(r"graph_\d+_|^void |at::native::|\(anonymous namespace\)::", "", name)
    return name if len(name) <= width else f"{name[: width - 11]}…{name[-10:]}"


if __name__ == "__main__":
    ladder.run.Run = ProfiledRun  # the script imports it from there
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
