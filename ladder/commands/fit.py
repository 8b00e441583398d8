"""The largest micro-batch that fits the device, for each rung, and the tokens per second there.

`ladder climb` keeps B the same for all rungs and so hides what a rung does to memory: what bfloat16
and flash attention free can be spent on a larger batch, which is often faster. This finds the
largest B by trying: twice as many until memory runs out, then halving the gap. Each try runs the
script in a process of its own; it fits if the script ends well, and its RESULT has the speed.

On a CPU give a limit with --memory: Linux then refuses the script more data memory than that. (It
counts all private writable memory, the peak that the table shows only what is in RAM, code too.)

  ladder fit                                       all rungs on the GPU
  ladder fit 0 3 6 --model tiny --memory 2         three rungs on a CPU, within 2 GiB
"""

import argparse
import json
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ladder.batches import Batches
from ladder.cli import MODELS, check_seq_len, parse_args, pick_device, positive
from ladder.commands.process import new_folder, run_python
from ladder.commands.scripts import select
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.log import Log, read_log

FITS, NO_MEMORY = "fits", "out of memory"
# Limits itself and becomes the script. argv: bytes, then the arguments for Python.
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@dataclass
class Settings:
    """What all tries have in common."""

    folder: Path
    python: list[str]  # how to call Python: within the limit, if there is one
    flags: list[str]  # for the scripts
    largest: int  # B that may be tried


@dataclass
class Row:
    """What is known of one rung."""

    script: str
    B: int = 0  # the largest that fitted, 0 for none
    tries: dict[int, str] = field(default_factory=dict)  # B -> fits, out of memory, or an error
    run: dict = field(default_factory=dict)  # from the log at B
    result: dict = field(default_factory=dict)
    note: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ladder fit`."""
    add = parser.add_argument
    add("rungs", nargs="*", help="numbers, ranges or paths, such as 0 3-6 (default: all)")
    add("--model", choices=MODELS, default="gpt2", help="default: gpt2 (124M)")
    add("--steps", type=positive, default=6, help="optimizer steps of each try (default: 6)")
    add("--seq-len", type=positive, help="tokens a sequence, T (CUDA: 1024, else 256)")
    add("--device", help="cpu, cuda, cuda:N or mps (default: the best there is)")
    add("--data", help="text, folder of texts, shard or folder of shards")
    add("--max-batch", type=positive, default=1024, help="try no larger B (default: 1024)")
    add("--memory", type=float, metavar="GIB", help="the limit on a CPU; needed there, and only")
    add("--out", help="folder for the logs of all tries and fit.json (default: runs/fit-…)")


def run(args: argparse.Namespace) -> int:
    """Find the largest B of each rung. Ctrl-C keeps what was found and prints it."""
    scripts = list(dict.fromkeys(select(args.rungs)))
    if len({path.stem for path in scripts}) < len(scripts):
        raise BadInput("two of these scripts have the same file name: rename one")
    settings, console, rows = settings_of(args), Console(), []
    try:
        for number, path in enumerate(scripts, 1):
            # Neighbours differ little: what fitted the rung before is a good first guess.
            first = max(rows[-1].B, 1) if rows else 1
            rows.append(Row(path.stem, note="stopped"))
            search(settings, path, rows[-1], first, f"rung {number} of {len(scripts)}", console)
    except KeyboardInterrupt:
        pass
    found = {"flags": settings.flags, "memory_gib": args.memory, "rungs": [*map(asdict, rows)]}
    (settings.folder / "fit.json").write_text(json.dumps(found, indent=1) + "\n")
    report(rows, args.memory, console)
    console.print(f"Logs of all tries and fit.json: {settings.folder}", soft_wrap=True)
    if rows[-1].note == "stopped":
        return 130
    return 0 if any(row.B for row in rows) else 1


def settings_of(args: argparse.Namespace) -> Settings:
    """Check device, limit, T and corpus before the first try. Raises BadInput."""
    device = pick_device(args.device)
    check_seq_len(args.seq_len)
    python = python_within(args.memory, device.type)
    flags = [f"--model={args.model}", f"--steps={args.steps}", f"--device={device}"]
    flags += [f"--seq-len={args.seq_len}"] if args.seq_len else []
    T = parse_args(__doc__, flags).seq_len
    corpus_end = Batches(load_corpus(args.data, print), 1, T).per_epoch  # its largest batch
    flags += [f"--data={args.data}"] if args.data else []
    folder = new_folder(args.out, "fit")
    return Settings(folder, python, flags, min(args.max_batch, corpus_end))


def python_within(gib: float | None, device_type: str) -> list[str]:
    """How to call Python so that it gets no more data memory than `gib`. Raises BadInput."""
    if device_type != "cpu":
        if gib is not None:
            raise BadInput("--memory is for CPUs: a GPU's limit is its own memory")
        return [sys.executable]
    if gib is None:
        raise BadInput("on a CPU say how much memory there is to fill: --memory GIB")
    if sys.platform != "linux":
        raise BadInput("--memory needs Linux: other systems do not hold a process to a limit")
    if not 0 < gib < 2**20:
        raise BadInput(f"--memory {gib:g}: expected a positive number of GiB")
    python = [sys.executable, "-c", LIMITED, str(int(gib * 2**30))]
    if subprocess.run([*python, "-c", "import torch"], capture_output=True).returncode:
        raise BadInput(f"--memory {gib:g} is not enough to import PyTorch: give more")
    return python


def search(
    settings: Settings, path: Path, row: Row, first: int, where: str, console: Console
) -> None:
    """Fill `row`: double B from `first` while it fits, then halve the gap to what does not."""
    high = settings.largest + 1  # the smallest B that cannot be
    B = min(first, settings.largest)
    while row.B < B < high:
        with console.status(f"{path.stem} B={B} ({where})"):
            outcome, log = try_batch(settings, path, B)
        row.tries[B] = outcome
        if log:
            row.B, row.run, row.result = B, log.run, log.result
        # Told only now that it is kept, should Ctrl-C come.
        console.print(f"{path.stem} B={B}: {outcome}", markup=False, soft_wrap=True)
        if outcome == NO_MEMORY:
            high = B
        elif not log:
            row.note = f"B={B} failed: {outcome}"
            return
        all_fit = high > settings.largest
        B = min(2 * row.B, settings.largest) if all_fit else (row.B + high) // 2
    row.note = "" if row.B else "not even B=1 fits"
    if row.tries.get(settings.largest) == FITS:
        row.note = "more may fit: here --max-batch or the corpus ends"


def try_batch(settings: Settings, path: Path, B: int) -> tuple[str, Log | None]:
    """Run `path` at B in a process of its own: how it went, and its log if it fits.

    The log and what the script wrote to stderr go to a folder of their own.
    """
    out = settings.folder / f"{path.stem}.B{B}"
    out.mkdir()
    words = (path, *settings.flags, f"--batch-size={B}", f"--log-dir={out}")
    cache = str(settings.folder.resolve() / "cache")
    done = run_python(*words, python=settings.python, TORCHINDUCTOR_CACHE_DIR=cache)
    (out / "stderr.txt").write_text(done.stderr, encoding="utf-8")
    if done.failure:
        # A process that could not allocate may crash while it ends: what it said decides.
        no_memory = f"error {NO_MEMORY}" in done.stderr or "std::bad_alloc" in done.stderr
        no_memory |= done.status == -signal.SIGKILL
        return NO_MEMORY if no_memory else done.failure, None
    try:
        return FITS, read_log(next(out.glob("*.log"), out))
    except BadInput as error:
        return str(error), None


def report(rows: list[Row], gib: float | None, console: Console) -> None:
    """Print the table, and above it what all its runs have in common."""
    if run := next((row.run for row in rows if row.run), None):
        line = "{device}, torch {torch}, {model}, T={T}, {steps} steps, {data}, commit {commit}"
        limit = f", {gib:g} GiB of data memory" if gib else ""
        console.print(line.format(**run) + limit, soft_wrap=True)
    table = Table("rung")
    for name in ("largest B", "tok/s there", "peak memory", "tries"):
        table.add_column(name, justify="right")
    table.add_column("note")
    for row in rows:
        speed = f"{row.result['tok_per_s']:.0f}" if row.B else "–"
        peak = row.result.get("peak_bytes")
        memory = f"{peak / 1e9:.2f} GB" if peak else "–"
        table.add_row(row.script, str(row.B), speed, memory, str(len(row.tries)), escape(row.note))
    console.print(table)
