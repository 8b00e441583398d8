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
PRECISIONS = ("fp32", "autocast")
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
    B, T = (16, 128) if device.type == "cuda" else (2, 64)
    spec = {"B": args.batch_size or B, "T": args.seq_len or T, "vocab_size": 10_000}
    spec |= {"steps": args.steps, "device": str(device)}
    if note := busy(load()):
        print(f"note  {note}")
    precisions = PRECISIONS
    if half_precision(device) == torch.float32:
        print("note  autocast stays off on this CPU: FP32 alone is timed")
        precisions = ("fp32",)
    print(HEAD.format(**{**spec, "torch": torch.__version__, "device": device_name(device)}))
    failed = []
    for values in product(args.models, PASSES, precisions, (0, 1)):
        cell = dict(zip(CELL, values, strict=True))
        done = run_python("-m", "ladder.commands.timeit", json.dumps({**cell, **spec}))
        try:
            cell["times_ms"] = done.answer()
        except BadInput as error:
            cell["error"] = str(error)
        print(line(cell), flush=True)
        failed.append("error" in cell)
    return int(all(failed))


def line(cell: dict) -> str:
    """One line of the table."""
    times = cell.get("times_ms")
    numbers = "".join(f" {find(times):6.1f}" for find in STATISTICS.values()) if times else ""
    return LABEL.format(*(str(cell[key]) for key in CELL)) + (numbers or f" {cell['error']}")


def measure(spec: dict) -> list[float]:
    """Milliseconds of each timed step, in this process.

    `spec` is the cell (CELL), B, T, vocab_size, steps and the device.
    """
    baseline = runpy.run_path(str(ROOT / "baseline.py"))
    device, passes = torch.device(spec["device"]), spec["pass"]
    # No scaler: what float16 gradients lose changes no time.
    dtype = half_precision(device) if spec["precision"] == "autocast" else None
    torch.manual_seed(1337)
    sizes = {"block_size": spec["T"], "vocab_size": spec["vocab_size"], **MODELS[spec["model"]]}
    model = baseline["GPT"](baseline["GPTConfig"](**sizes)).to(device)
    synchronize = baseline["synchronize"]
    x, y = torch.randint(spec["vocab_size"], (2, spec["B"], spec["T"]), device=device)  # (B, T)

    def forward() -> torch.Tensor:
        # Enter autocast in each step: it caches cast weights until it exits.
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            return model(x, y)[1]

    def step() -> float:
        model.zero_grad()
        loss = forward() if passes == "backward" else None
        synchronize(device)
        start = time.perf_counter()
        if passes != "backward":
            loss = forward()
        if passes != "forward":
            loss.backward()
        synchronize(device)
        return round((time.perf_counter() - start) * 1e3, 4)

    return [step() for _ in range(spec["warmup"] + spec["steps"])][spec["warmup"] :]


if __name__ == "__main__":  # one cell, started by run()
    raise SystemExit(program(lambda: print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))))
