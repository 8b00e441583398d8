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
import math
import runpy
import sys
import time
from contextlib import suppress
from itertools import groupby, product
from operator import itemgetter
from statistics import mean, median, stdev

import torch
from rich.console import Console
from rich.table import Column, Table

from ladder import machine
from ladder.cli import GPUS, MODELS, add_flags, pick_device, positive
from ladder.commands.process import new_folder, run_python
from ladder.commands.tables import whole, wide_console
from ladder.errors import BadInput, explain
from ladder.files import ROOT, commit, write_whole

CELL = ("model", "pass", "precision", "warmup")
pair_of = itemgetter(*CELL[:-1])
PASSES = ("forward", "backward", "forward+backward")
PRECISIONS = ("fp32", "autocast")
# A narrow terminal shows the first ones.
STATISTICS = {"mean": mean, "std": stdev, "median": median, "total": sum, "min": min, "max": max}


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
    """Time all cells, print and write the table. What stops it keeps the cells that are done."""
    if args.steps < 2:
        raise BadInput("--steps 1: a standard deviation needs at least 2")
    device = pick_device(args.device)
    B, T = (16, 128) if device.type in GPUS else (2, 64)
    settings = {"B": args.batch_size or B, "T": args.seq_len or T, "vocab_size": args.vocab_size}
    settings |= {"steps": args.steps, "device": str(device)}
    folder, cells = new_folder(args.out, "timeit"), []
    facts = {**settings, "torch": torch.__version__, "commit": commit()}
    facts |= {"device": machine.device_name(device), "cells": cells}

    def save():
        write_whole(folder / "timeit.json", json.dumps(facts, indent=1).encode() + b"\n")

    # One named twice counts once.
    asked = [*dict.fromkeys(product(args.models, args.passes, PRECISIONS, (0, 1)))]
    print(f"timing {len(asked)} cells, each in a process of its own")
    started = time.monotonic()
    try:
        for number, values in enumerate(asked, 1):
            if (now := commit()) != facts["commit"]:
                why = f"the code changed from commit {facts['commit']} to {now}"
                raise BadInput(f"{why}: the {len(cells)} cells before are in {folder}")
            cell = dict(zip(CELL, values, strict=True))
            done = run_python("-m", "ladder.commands.timeit", json.dumps({**cell, **settings}))
            try:
                times = done.answer()
                cell |= {f"{name}_ms": of(times) for name, of in STATISTICS.items()}
                cell["times_ms"] = times
            except BadInput as error:
                cell["error"] = str(error)
            cells.append(cell)
            with suppress(OSError):  # of a full disk: told at the end, below the table
                save()
            # One line per finished cell, no bar: its thread would redraw while a cell is timed.
            outcome = "failed" if "error" in cell else "done"
            left = (time.monotonic() - started) / number * (len(asked) - number) / 60
            print(f"cell {number} of {len(asked)} {outcome}, about {left:.0f} min left", flush=True)
    except KeyboardInterrupt:
        print(f"stopped after {len(cells)} of {len(asked)} cells")
    report(facts, wide_console())  # first: the disk may be full
    save()
    print(f"Raw times: {folder / 'timeit.json'}")
    if len(cells) < len(asked):
        return 130
    return 0 if any("times_ms" in cell for cell in cells) else 1


def in_pairs(cells: list[dict]) -> list[list[dict]]:
    """A cell without warm-up and the one with it; the fastest pair first, what failed last."""
    cells = sorted(cells, key=lambda cell: (pair_of(cell), cell["warmup"]))
    pairs = [list(pair) for _, pair in groupby(cells, pair_of)]
    return sorted(pairs, key=lambda pair: min(cell.get("mean_ms", math.inf) for cell in pair))


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
    model = baseline["GPT"](baseline["GPTConfig"](**sizes)).to(device)
    synchronize = baseline["synchronize"]
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


def report(facts: dict, console: Console) -> None:
    """Print the table, with the columns that the console does not wrap, and what warm-up did."""
    line = "{device}, torch {torch}, B={B}, T={T}, vocabulary {vocab_size}, {steps} timed steps, ms"
    console.print(line.format(**facts))
    pairs = in_pairs(facts["cells"])
    cells = [cell for pair in pairs for cell in pair]

    def draw(shown: int) -> Table:
        names = [*STATISTICS][:shown]
        table = Table(*CELL, *(Column(name, justify="right") for name in names))
        table.padding, table.show_edge = 0, False
        for cell in cells:
            times = cell.get("times_ms")
            numbers = [f"{STATISTICS[name](times):.2f}" if times else "failed" for name in names]
            table.add_row(*(str(cell[name]) for name in CELL), *numbers)
        return table

    console.print(whole(console, draw, len(STATISTICS), 1))
    for cell in cells:
        if "error" in cell:
            name = " ".join(str(cell[name]) for name in CELL)
            console.print(f"{name} failed: {cell['error']}", soft_wrap=True, markup=False)
    console.print(warmup_effect(pairs))


def warmup_effect(pairs: list[list[dict]]) -> str:
    """One sentence that compares the standard deviations without and with warm-up."""
    stds = [[cell["std_ms"] for cell in pair if "std_ms" in cell] for pair in pairs]
    if not (stds := [pair for pair in stds if len(pair) == 2]):
        return "No cell was measured both without and with warm-up."
    without, with_one = map(median, zip(*stds, strict=True))
    fell = sum(after < before for before, after in stds)
    return (
        f"One warm-up step took the standard deviation from {without:.2f} ms to {with_one:.2f} ms "
        f"(medians of {len(stds)} pairs of cells); it fell in {fell} of them."
    )


if __name__ == "__main__":  # one cell, started by run()
    try:
        print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
    except Exception as error:  # the table shows it, whatever it is
        raise SystemExit(f"error {explain(error) or repr(error)}") from None
