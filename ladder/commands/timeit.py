"""The classic timing matrix: how long forward and backward take, and what one warm-up step changes.

Every model is timed forward, backward and both, in full precision (FP32) and under bfloat16
autocast, without and with one untimed warm-up step. Each of these cells is a process of its own, so
that without warm-up the first step really is the first: it pays for loading kernels and for memory
that later ones find ready. See the column std. On CUDA B=16 and T=128, elsewhere B=2 and T=64.

The model is baseline.py's, on random tokens, without an optimizer. forward keeps what backward
needs; before a backward that is timed alone its forward runs untimed.

  ladder timeit                                    gpt2 and gpt2-medium: 24 cells
  ladder timeit --models tiny --steps 10           a quick look
"""

import argparse
import csv
import json
import runpy
import statistics
import sys
import time
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ladder import machine
from ladder.cli import MODELS, add_flags, pick_device, positive
from ladder.commands.process import new_folder, run_python
from ladder.errors import BadInput, explain
from ladder.files import ROOT, commit

CELL = ("model", "pass", "precision", "warmup")
PASSES = ("forward", "backward", "forward+backward")
PRECISIONS = ("fp32", "autocast")
STATISTICS = {
    "mean_ms": statistics.mean,
    "median_ms": statistics.median,
    "std_ms": statistics.stdev,
    "min_ms": min,
    "max_ms": max,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ladder timeit`."""
    add = parser.add_argument
    sizes = dict(nargs="+", choices=MODELS, metavar="MODEL", default=["gpt2", "gpt2-medium"])
    add("--models", **sizes, help=f"some of {', '.join(MODELS)} (default: gpt2 gpt2-medium)")
    add("--passes", nargs="+", choices=PASSES, default=PASSES, help="default: all three")
    add("--steps", type=positive, default=5, help="timed steps of each cell (default: 5)")
    add("--batch-size", type=positive, help="sequences, B (CUDA: 16, else 2)")
    add("--seq-len", type=positive, help="tokens a sequence, T (CUDA: 128, else 64)")
    add("--vocab-size", type=positive, default=10_000, help="default: 10000")
    add_flags(parser, "device")
    add("--out", help="folder for timeit.csv and timeit.json (default: runs/timeit-…)")


def run(args: argparse.Namespace) -> int:
    """Time all cells, print and write the table. Ctrl-C keeps the cells that are done."""
    if args.steps < 2:
        raise BadInput("--steps 1: a standard deviation needs at least 2")
    device = pick_device(args.device)
    B, T = (16, 128) if device.type == "cuda" else (2, 64)
    settings = {
        "B": args.batch_size or B,
        "T": args.seq_len or T,
        "vocab_size": args.vocab_size,
        "steps": args.steps,
        "device": str(device),
    }
    folder = new_folder(args.out, "timeit")
    console, rows = Console(), []
    cells = list(product(*map(dict.fromkeys, (args.models, args.passes)), PRECISIONS, (0, 1)))
    try:
        for number, values in enumerate(cells, 1):
            cell = dict(zip(CELL, values, strict=True))
            rows.append({**cell, **run_cell({**cell, **settings})})
            # A line for each finished cell: a bar is a thread that redraws while a cell is timed.
            outcome = "failed" if "error" in rows[-1] else "done"
            console.print(f"cell {number} of {len(cells)} {outcome}", highlight=False)
    except KeyboardInterrupt:
        console.print(f"stopped after {len(rows)} of {len(cells)} cells")
    # Fastest first; a cell that failed has no mean and comes last.
    rows.sort(key=lambda row: row.get("mean_ms", float("inf")))
    versions = {"torch": torch.__version__, "commit": commit()}
    facts = {**settings, **versions, "device": machine.device_name(device)}
    write(folder, facts, rows)
    report(facts, rows, console)
    console.print(f"Raw times: timeit.csv and timeit.json in {folder}", soft_wrap=True)
    if len(rows) < len(cells):
        return 130
    return 0 if any("mean_ms" in row for row in rows) else 1


def run_cell(spec: dict) -> dict:
    """One cell in a process of its own: statistics and times_ms, or as `error` why there are none.

    `spec` is the cell (CELL), B, T, vocab_size, steps and the device.
    """
    done = run_python("-m", "ladder.commands.timeit", json.dumps(spec))
    if done.failure:
        return {"error": done.failure}
    times = json.loads(done.stdout)
    return {**{name: of(times) for name, of in STATISTICS.items()}, "times_ms": times}


def measure(spec: dict) -> list[float]:
    """Milliseconds of each timed step of the cell `spec`, in this process."""
    baseline = runpy.run_path(str(ROOT / "baseline.py"))
    device, passes = torch.device(spec["device"]), spec["pass"]
    autocast = spec["precision"] == "autocast"
    if autocast:
        machine.require_bf16(device)
    torch.manual_seed(1337)
    sizes = {"block_size": spec["T"], "vocab_size": spec["vocab_size"], **MODELS[spec["model"]]}
    synchronize = baseline["synchronize"]
    model = baseline["GPT"](baseline["GPTConfig"](**sizes)).to(device)
    x, y = torch.randint(spec["vocab_size"], (2, spec["B"], spec["T"]), device=device)  # (B, T)

    def forward() -> torch.Tensor:
        # Entered anew each step: within one autocast, weights once cast would stay cast.
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
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


def write(folder: Path, facts: dict, rows: list[dict]) -> None:
    """timeit.json: everything; timeit.csv: a line for each cell, its times with spaces between."""
    text = json.dumps({**facts, "cells": rows}, indent=1) + "\n"
    (folder / "timeit.json").write_text(text, encoding="utf-8")
    with (folder / "timeit.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*CELL, *STATISTICS, "times_ms", "error"])
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "times_ms": " ".join(map(str, row.get("times_ms", [])))})


def report(facts: dict, rows: list[dict], console: Console) -> None:
    """Print the table and what warm-up did to the standard deviation."""
    line = "{device}, torch {torch}, B={B}, T={T}, vocabulary {vocab_size}, {steps} timed steps, ms"
    console.print(line.format(**facts), soft_wrap=True)
    table = Table(*CELL, padding=0, show_edge=False)
    for name in STATISTICS:
        table.add_column(name.removesuffix("_ms"), justify="right")
    if any("error" in row for row in rows):
        table.add_column("failed")
    for row in rows:
        numbers = [f"{row[name]:.2f}" if name in row else "–" for name in STATISTICS]
        error = [escape(row["error"])] if "error" in row else []
        # With spaces a narrow terminal can break the line there.
        cell = [str(row[name]).replace("+", " + ") for name in CELL]
        table.add_row(*cell, *numbers, *error)
    console.print(table)
    console.print(warmup_effect(rows), soft_wrap=True)


def warmup_effect(rows: list[dict]) -> str:
    """One sentence: the standard deviation of cells that differ in nothing but the warm-up."""
    std = {tuple(row[name] for name in CELL): row["std_ms"] for row in rows if "std_ms" in row}
    warm_of = {cell: (*cell[:-1], 1) for cell in std if cell[-1] == 0}
    pairs = [(std[cold], std[warm]) for cold, warm in warm_of.items() if warm in std]
    if not pairs:
        return "No cell was measured both without and with warm-up."
    without, with_one = (statistics.median(values) for values in zip(*pairs, strict=True))
    fell = sum(after < before for before, after in pairs)
    return (
        f"One warm-up step took the standard deviation from {without:.2f} ms to {with_one:.2f} ms "
        f"(medians of {len(pairs)} pairs of cells); it fell in {fell} of them."
    )


if __name__ == "__main__":  # one cell, started by run_cell
    try:
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    except Exception as error:  # whatever it is, the table tells it
        raise SystemExit(f"error {explain(error) or repr(error)}") from None
