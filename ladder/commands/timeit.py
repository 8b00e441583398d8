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
from operator import itemgetter
from statistics import mean, median, stdev

import torch
from rich.console import Console
from rich.table import Column, Table

from ladder import machine
from ladder.cli import MODELS, add_flags, integer, pick_device, positive
from ladder.commands.process import new_folder, run_python
from ladder.commands.tables import wide_console, widest
from ladder.errors import BadInput, explain
from ladder.files import ROOT, commit, write_atomic

CELL = ("model", "pass", "precision", "warmup")
PASSES = ("forward", "backward", "forward+backward")
PRECISIONS = ("fp32", "autocast")
# A narrow terminal shows the first ones.
STATISTICS = {"mean": mean, "std": stdev, "median": median, "total": sum, "min": min, "max": max}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    sizes = dict(nargs="+", choices=MODELS, metavar="MODEL", default=["gpt2", "gpt2-medium"])
    add("--models", **sizes, help=f"some of {', '.join(MODELS)} (default: gpt2 gpt2-medium)")
    add("--passes", nargs="+", choices=PASSES, default=PASSES, help="default: all three")
    add("--steps", type=integer(2), default=5, help="timed steps of each cell (default: 5)")
    add("--batch-size", type=positive, help="sequences, B (default: CUDA 16, else 2)")
    add("--seq-len", type=positive, help="tokens a sequence, T (default: CUDA 128, else 64)")
    add("--vocab-size", type=positive, default=10_000, help="tokens known (default: 10000)")
    add_flags(parser, "device")
    add("--out", help="folder for timeit.json (default: runs/timeit-…)")


def run(args: argparse.Namespace) -> int:
    """Time all cells, print and write the table. What stops it keeps the cells that are done."""
    device = pick_device(args.device)
    B, T = (16, 128) if device.type == "cuda" else (2, 64)
    spec = {"B": args.batch_size or B, "T": args.seq_len or T, "vocab_size": args.vocab_size}
    spec |= {"steps": args.steps, "device": str(device)}
    facts = {**spec, "torch": torch.__version__, "commit": commit()}
    facts |= {"device": machine.device_name(device), "cells": (cells := [])}
    folder = new_folder(args.out, "timeit")
    if line := machine.busy(machine.load(), 0.75):
        print(f"note  {line}")
    asked = [*product(args.models, args.passes, PRECISIONS, (0, 1))]
    started = time.monotonic()
    try:
        for number, values in enumerate(asked, 1):
            print(f"cell {number} of {len(asked)}:", *values, end=" ", flush=True)
            cell = dict(zip(CELL, values, strict=True))
            done = run_python("-m", "ladder.commands.timeit", json.dumps({**cell, **spec}))
            try:
                cell["times_ms"] = done.answer()
                outcome = f"{mean(cell['times_ms']):.2f} ms"
            except BadInput as error:
                outcome = cell["error"] = str(error)
            left = (time.monotonic() - started) / number * (len(asked) - number) / 60
            print(f"{outcome}, about {left:.0f} min left")
            cells.append(cell)
            write_atomic(folder / "timeit.json", json.dumps(facts, indent=1).encode() + b"\n")
    except KeyboardInterrupt:
        print(f"stopped after {len(cells)} of {len(asked)} cells")
    report(facts, wide_console())
    print(f"Raw times: {folder / 'timeit.json'}")
    return 130 if len(cells) < len(asked) else int(not any("times_ms" in cell for cell in cells))


def measure(spec: dict) -> list[float]:
    """Milliseconds of each timed step, in this process.

    `spec` is the cell (CELL), B, T, vocab_size, steps and the device.
    """
    baseline = runpy.run_path(str(ROOT / "baseline.py"))
    device, passes = torch.device(spec["device"]), spec["pass"]
    # No scaler: what float16 gradients lose changes no time.
    dtype = machine.half_precision(device) if spec["precision"] == "autocast" else None
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


def report(facts: dict, console: Console) -> None:
    """Print the table, with the columns that the console does not wrap."""
    line = "{device}, torch {torch}, B={B}, T={T}, vocabulary {vocab_size}, {steps} timed steps, ms"
    console.print(line.format(**facts))

    cells = sorted(facts["cells"], key=itemgetter(*CELL))

    def draw(shown: int) -> Table:
        names = [*STATISTICS][:shown]
        table = Table(*CELL, *(Column(name, justify="right") for name in names))
        table.padding, table.show_edge = 0, False
        for cell in cells:
            times = cell.get("times_ms")
            numbers = [f"{STATISTICS[name](times):.2f}" if times else "failed" for name in names]
            table.add_row(*(str(cell[name]) for name in CELL), *numbers)
        return table

    console.print(widest(console, draw, len(STATISTICS), 1))


if __name__ == "__main__":  # one cell, started by run()
    try:
        print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
    except Exception as error:  # the table shows it, whatever it is
        raise SystemExit(f"error {explain(error) or repr(error)}") from None
