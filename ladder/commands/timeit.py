"""The classic timing matrix: how long forward and backward take, and what one warm-up step changes.

Every model is timed forward, backward and both, in full precision (FP32) and under autocast
(bfloat16, or float16 on a GPU without its units), without and with one untimed warm-up step. Each
of these cells runs in its own process, so that without warm-up the first step really is the first:
it loads kernels and allocates memory that later steps reuse. The column std shows it. On CUDA and
XPU B=16 and T=128, elsewhere B=2 and T=64.

The model is baseline.py's, on random tokens, without an optimizer. forward keeps what backward
needs. When backward is timed alone, its forward runs before it, untimed.

  ladder timeit                                    gpt2 and gpt2-medium: 24 cells
  ladder timeit --models tiny --steps 10           a quick look
"""

import argparse
import json
import math
import runpy
import statistics
import sys
import time
from itertools import product
from operator import itemgetter

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from ladder import machine
from ladder.cli import GPUS, MODELS, add_flags, pick_device, positive
from ladder.commands.process import new_folder, run_python
from ladder.errors import BadInput, explain
from ladder.files import ROOT, commit, write_whole

CELL = ("model", "pass", "precision", "warmup")
PASSES = ("forward", "backward", "forward+backward")
PRECISIONS = ("fp32", "autocast")
STATISTICS = {
    "mean_ms": statistics.mean,
    "median_ms": statistics.median,
    "std_ms": statistics.stdev,
    "min_ms": min,
    "max_ms": max,
    "total_ms": sum,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    sizes = dict(nargs="+", choices=MODELS, metavar="MODEL", default=["gpt2", "gpt2-medium"])
    add("--models", **sizes, help=f"some of {', '.join(MODELS)} (default: gpt2 gpt2-medium)")
    add("--passes", nargs="+", choices=PASSES, default=PASSES, help="default: all three")
    add("--steps", type=positive, default=5, help="timed steps of each cell (default: 5)")
    add("--batch-size", type=positive, help="sequences, B (default: CUDA, XPU 16, else 2)")
    add("--seq-len", type=positive, help="tokens a sequence, T (default: CUDA, XPU 128, else 64)")
    add("--vocab-size", type=positive, default=10_000, help="tokens known (default: 10000)")
    add_flags(parser, "device")
    add("--out", help="folder for timeit.json (default: runs/timeit-…)")


def run(args: argparse.Namespace) -> int:
    """Time all cells, print and write the table. Ctrl-C keeps the cells that are done."""
    if args.steps < 2:
        raise BadInput("--steps 1: a standard deviation needs at least 2")
    device = pick_device(args.device)
    B, T = (16, 128) if device.type in GPUS else (2, 64)
    settings = {"B": args.batch_size or B, "T": args.seq_len or T, "vocab_size": args.vocab_size}
    settings |= {"steps": args.steps, "device": str(device)}
    folder = new_folder(args.out, "timeit")
    cells = list(product(args.models, args.passes, PRECISIONS, (0, 1)))
    rows, started = [], time.monotonic()
    try:
        for number, values in enumerate(cells, 1):
            cell = dict(zip(CELL, values, strict=True))
            done = run_python("-m", "ladder.commands.timeit", json.dumps({**cell, **settings}))
            if done.failure:
                cell["error"] = done.failure
            else:
                times = json.loads(done.stdout)
                cell |= {name: of(times) for name, of in STATISTICS.items()} | {"times_ms": times}
            rows.append(cell)
            # One line per finished cell, no bar: its thread would redraw while a cell is timed.
            outcome = "failed" if done.failure else "done"
            left = (time.monotonic() - started) / number * (len(cells) - number) / 60
            print(f"cell {number} of {len(cells)} {outcome}, about {left:.0f} min left", flush=True)
    except KeyboardInterrupt:
        print(f"stopped after {len(rows)} of {len(cells)} cells")
    rows = in_pairs(rows)
    versions = {"torch": torch.__version__, "commit": commit()}
    facts = {**settings, **versions, "device": machine.device_name(device)}
    text = json.dumps({**facts, "cells": rows}, indent=1)
    write_whole(folder / "timeit.json", text.encode() + b"\n")
    report(facts, rows, Console())
    print(f"Raw times: {folder / 'timeit.json'}")
    if len(rows) < len(cells):
        return 130
    return 0 if any("mean_ms" in row for row in rows) else 1


def in_pairs(rows: list[dict]) -> list[dict]:
    """Cells without warm-up beside those with it; the fastest pair first, what failed last."""
    best, of = {}, itemgetter(*CELL[:-1])
    for row in rows:
        best[of(row)] = min(best.get(of(row), math.inf), row.get("mean_ms", math.inf))
    return sorted(rows, key=lambda row: (best[of(row)], of(row), row["warmup"]))


def measure(spec: dict) -> list[float]:
    """Milliseconds of each timed step, in this process.

    `spec` is the cell (CELL), B, T, vocab_size, steps and the device.
    """
    baseline = runpy.run_path(str(ROOT / "baseline.py"))
    device, passes = torch.device(spec["device"]), spec["pass"]
    autocast = spec["precision"] == "autocast"
    # No scaler: what float16 gradients lose changes no time.
    dtype = machine.half_precision(device) if autocast else None
    torch.manual_seed(1337)
    sizes = {"block_size": spec["T"], "vocab_size": spec["vocab_size"], **MODELS[spec["model"]]}
    synchronize = baseline["synchronize"]
    model = baseline["GPT"](baseline["GPTConfig"](**sizes)).to(device)
    x, y = torch.randint(spec["vocab_size"], (2, spec["B"], spec["T"]), device=device)  # (B, T)

    def forward() -> torch.Tensor:
        # Enter autocast in each step: it caches cast weights until it exits.
        with torch.autocast(device.type, dtype=dtype, enabled=autocast):
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


def report(facts: dict, rows: list[dict], console: Console) -> None:
    """Print the table and what warm-up did to the standard deviation."""
    line = "{device}, torch {torch}, B={B}, T={T}, vocabulary {vocab_size}, {steps} timed steps, ms"
    console.print(line.format(**facts), soft_wrap=True)
    numbers = (Column(name.removesuffix("_ms"), justify="right") for name in STATISTICS)
    table = Table(*CELL, *numbers, padding=0, show_edge=False)
    if any("error" in row for row in rows):
        table.add_column("failed")
    for row in rows:
        times = row.get("times_ms")
        numbers = [f"{of(times):.2f}" if times else "–" for of in STATISTICS.values()]
        error = [escape(row["error"])] if "error" in row else []
        # Spaces allow a narrow terminal to break the line.
        cell = [str(row[name]).replace("+", " + ") for name in CELL]
        table.add_row(*cell, *numbers, *error)
    console.print(table)
    console.print(warmup_effect(rows), soft_wrap=True)


def warmup_effect(rows: list[dict]) -> str:
    """One sentence that compares the standard deviations of cells with and without warm-up."""
    std = {tuple(row[name] for name in CELL): row["std_ms"] for row in rows if "std_ms" in row}
    warm_of = {cell: (*cell[:-1], 1) for cell in std if cell[-1] == 0}
    pairs = [(std[cold], std[warm]) for cold, warm in warm_of.items() if warm in std]
    if not pairs:
        return "No cell was measured both without and with warm-up."
    without, with_one = map(statistics.median, zip(*pairs, strict=True))
    fell = sum(after < before for before, after in pairs)
    return (
        f"One warm-up step took the standard deviation from {without:.2f} ms to {with_one:.2f} ms "
        f"(medians of {len(pairs)} pairs of cells); it fell in {fell} of them."
    )


if __name__ == "__main__":  # one cell, started by run()
    try:
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    except Exception as error:  # the table shows it, whatever it is
        raise SystemExit(f"error {explain(error) or repr(error)}") from None
