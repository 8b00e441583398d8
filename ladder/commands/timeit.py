"""The classic timing matrix: how long forward and backward take, and what one warm-up step changes.

  ladder timeit                                    gpt2 and gpt2-medium: 24 cells
  ladder timeit --models tiny --steps 10           a quick look

Every model is timed forward, backward and both, in full precision (FP32) and under autocast
(bfloat16, or float16 on a GPU without its units), without and with one untimed warm-up step. Each
of these cells is a process of its own, so that without warm-up the first step really is the first:
it loads kernels and allocates memory that later steps reuse. The column std shows it.

The model is baseline.py's, on random tokens, without an optimizer. Where backward is timed alone,
its forward runs before it, untimed.
"""

import argparse
import json
import runpy
import sys
import time
from itertools import product
from statistics import mean, median, stdev

import torch

from ladder.cli import MODELS, add_flags, integer, pick_device, positive
from ladder.commands.main import program
from ladder.errors import BadInput
from ladder.files import ROOT
from ladder.machine import device_name, half_precision
from ladder.measure.process import busy, load, run_python

CELL = ("model", "pass", "precision", "warmup")
LABEL = "{:12}{:17}{:10}{:6}"
PASSES = ("forward", "backward", "forward+backward")
STATISTICS = {"mean": mean, "std": stdev, "median": median, "min": min, "max": max}
HEAD = "{device}, torch {torch}, B={B}, T={T}, vocabulary {vocab_size}, {steps} timed steps, ms\n"
HEAD += " ".join([LABEL.format(*CELL), *(f"{name:>6}" for name in STATISTICS)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    sizes = dict(nargs="+", choices=MODELS, metavar="MODEL", default=["gpt2", "gpt2-medium"])
    add("--models", **sizes, help=f"some of {', '.join(MODELS)} (default: gpt2 gpt2-medium)")
    add("--steps", type=integer(2), default=5, help="timed steps of each cell (default: 5)")
    add("--batch-size", type=positive, help="sequences, B (default: CUDA 16, else 2)")
    add("--seq-len", type=positive, help="tokens a sequence, T (default: CUDA 128, else 64)")
    add_flags(parser, "device")


def run(args: argparse.Namespace) -> int:
    """Time all cells and print a line for each. Returns 1 if all failed."""
    device = pick_device(args.device)
    on_gpu = device.type == "cuda"
    B = args.batch_size or (16 if on_gpu else 2)
    T = args.seq_len or (128 if on_gpu else 64)
    spec = {"B": B, "T": T, "vocab_size": 10_000, "steps": args.steps, "device": str(device)}
    if note := busy(load()):
        print(f"note  {note}")
    precisions = ["fp32", "autocast"]
    if half_precision(device) == torch.float32:
        print("note  autocast stays off on this CPU: FP32 alone is timed")
        precisions = ["fp32"]
    words = {**spec, "torch": torch.__version__, "device": device_name(device)}
    print(HEAD.format(**words))
    failed = 0
    cells = list(product(args.models, PASSES, precisions, (0, 1)))
    for values in cells:
        cell = dict(zip(CELL, values, strict=True))
        try:
            done = run_python("-m", "ladder.commands.timeit", json.dumps({**cell, **spec}))
            cell["times_ms"] = done.answer()
        except BadInput as error:
            cell["error"] = str(error)
            failed += 1
        print(line(cell), flush=True)
    return int(failed == len(cells))


def line(cell: dict) -> str:
    """One line of the table."""
    label = LABEL.format(*(str(cell[key]) for key in CELL))
    if "error" in cell:
        return f"{label} {cell['error']}"
    for find in STATISTICS.values():
        label += f" {find(cell['times_ms']):6.1f}"
    return label


def measure(spec: dict) -> list[float]:
    """Milliseconds of each timed step, in this process.

    `spec` is the cell (CELL), B, T, vocab_size, steps and the device.
    """
    baseline = runpy.run_path(str(ROOT / "baseline.py"))
    device = torch.device(spec["device"])
    synchronize = baseline["synchronize"]
    autocast = spec["precision"] == "autocast"
    # No scaler: what float16 gradients lose changes no time.
    dtype = half_precision(device) if autocast else None
    torch.manual_seed(1337)
    sizes = {"block_size": spec["T"], "vocab_size": spec["vocab_size"], **MODELS[spec["model"]]}
    model = baseline["GPT"](baseline["GPTConfig"](**sizes)).to(device)
    x, y = torch.randint(spec["vocab_size"], (2, spec["B"], spec["T"]), device=device)  # (B, T)

    def forward() -> torch.Tensor:
        # Enter autocast in each step: it caches cast weights until it exits.
        with torch.autocast(device.type, dtype=dtype, enabled=autocast):
            return model(x, y)[1]

    times = []
    for step in range(spec["warmup"] + spec["steps"]):
        model.zero_grad()
        if spec["pass"] == "backward":
            loss = forward()
        synchronize(device)
        start = time.perf_counter()
        if spec["pass"] != "backward":
            loss = forward()
        if spec["pass"] != "forward":
            loss.backward()
        synchronize(device)
        ms = (time.perf_counter() - start) * 1e3
        del loss  # with what its backward pass would need, outside the clock
        if step >= spec["warmup"]:
            times.append(round(ms, 4))
    return times


def measure_cell() -> None:
    """Time the cell that the command line describes, and print its times."""
    times = measure(json.loads(sys.argv[1]))
    print(f"\n{json.dumps(times)}")


if __name__ == "__main__":  # one cell, started by run()
    raise SystemExit(program(measure_cell))
