"""The largest micro-batch that fits the device, for each rung, and the tokens per second there.

  ladder fit                                       all rungs on the GPU
  ladder fit 0 3 6 --model tiny --memory 2         three rungs on a CPU, within 2 GiB

`ladder climb` keeps B the same for all rungs and so hides what a rung does to memory. This command
doubles B until memory runs out, then bisects; each try is a run of its own. `ladder climb --fit`
does the same, then climbs with each rung at its B. On a CPU Linux holds the script to --memory GiB
of data: all private writable memory. (The peak in the table counts what is in RAM, code too.)
"""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from ladder.batches import Batches
from ladder.cli import (
    above_zero,
    add_flags,
    check_seq_len,
    given_flags,
    parse_args,
    pick_device,
    positive,
)
from ladder.commands.process import compile_cache, new_folder, run_python
from ladder.commands.results import read_run
from ladder.commands.scripts import RUNGS, refuse_namesakes, select
from ladder.commands.tables import wide_console
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import write_whole
from ladder.log import show

FITS, NO_MEMORY = "fits", "out of memory"
MAX_BATCH = 1024
PASSED_ON = ("model", "steps", "seq_len", "device", "data")  # flags that the scripts get


@dataclass
class Row:
    """The search for one rung's batch."""

    script: str
    B: int = 0  # the largest that fitted, 0 for none
    tries: dict[int, str] = field(default_factory=dict)  # B -> fits, out of memory, or an error
    run: dict = field(default_factory=dict)  # from the log at B
    result: dict = field(default_factory=dict)
    note: str = "stopped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("rungs", nargs="*", help=RUNGS)
    add_flags(parser, *(name for name in PASSED_ON if name != "steps"))
    add("--steps", type=positive, default=6, help="optimizer steps (default: 6)")
    largest = f"try no larger B (default: {MAX_BATCH})"
    add("--max-batch", type=positive, default=MAX_BATCH, help=largest)
    memory = "needed on a CPU: its limit (default: none)"
    add("--memory", type=above_zero, metavar="GIB", help=memory)
    add("--out", help="folder for the logs of all tries and fit.json (default: runs/fit-…)")


def run(args: argparse.Namespace) -> int:
    """Find the largest B of each rung. What stops it keeps what was found.

    Raises BadInput if device, limit, T or corpus are wrong, before the first try.
    """
    refuse_namesakes(scripts := select(args.rungs))
    if len({path.stem for path in scripts}) < len(scripts):
        raise BadInput("two of these scripts have the same file name")
    python = python_within(args.memory, pick_device(args.device).type)
    check_seq_len(args.seq_len)
    flags = given_flags(args, *PASSED_ON)
    largest, rows = most(flags, args.max_batch), []
    folder = new_folder(args.out, "fit")
    try:
        with suppress(KeyboardInterrupt):
            for path in scripts:
                # Neighbours differ little, so start with the B that fitted the rung before.
                first = rows[-1].B if rows else 1
                rows.append(Row(path.stem))
                search(rows[-1], first, largest, partial(try_batch, path, folder, python, flags))
    finally:  # also after Ctrl-C that closed the pipe behind it
        shutil.rmtree(compile_cache(folder), ignore_errors=True)
        found = {"flags": flags, "memory_gib": args.memory, "rungs": [*map(asdict, rows)]}
        try:
            write_whole(folder / "fit.json", json.dumps(found, indent=1).encode() + b"\n")
        finally:  # the disk may be full
            report(rows, args.memory, wide_console())
    print(f"Logs of all tries and fit.json: {folder}")
    if rows[-1].note == "stopped":
        return 130
    return 0 if any(row.B for row in rows) else 1


def most(flags: list[str], max_batch: int = MAX_BATCH) -> int:
    """The largest B to try with these flags of a script: what the corpus holds, if that is less."""
    args = parse_args(__doc__, flags)
    corpus_end = Batches(load_corpus(args.data, show), 1, args.seq_len).rows_per_epoch
    print("trying batches, each a run of its own: minutes where it compiles", flush=True)
    return min(max_batch, corpus_end)


def batches_of(
    facts: dict, scripts: list[Path], flags: list[str], folder: Path
) -> Iterator[tuple[str, int | str]]:
    """Yield the stem of each script of a climb with --fit, and its B, or why it has none.

    Six steps a try, whatever the climb does.
    """
    shutil.rmtree(folder, ignore_errors=True)  # of a search that was stopped
    folder.mkdir()
    flags, row = [*flags, "--steps=6"], Row("", 1)  # the last one counts
    python = python_with(gib) if (gib := facts.get("memory_gib")) else [sys.executable]
    largest = most(flags)
    for path in scripts:
        first, row = row.B, Row(path.stem)
        search(row, first, largest, partial(try_batch, path, folder, python, flags))
        B, outcome = list(row.tries.items())[-1]
        broke_off = outcome not in (FITS, NO_MEMORY)  # then the B before it need not be the largest
        yield row.script, f"{outcome}, at B={B}" if broke_off else row.B or row.note
    shutil.rmtree(compile_cache(folder), ignore_errors=True)


def python_within(gib: float | None, device_type: str) -> list[str]:
    """The command that runs Python with at most `gib` of data memory. Raises BadInput."""
    if device_type != "cpu":
        if gib is not None:
            raise BadInput("--memory is for CPUs: a GPU's limit is its own memory")
        return [sys.executable]
    if gib is None:
        raise BadInput("on a CPU say how much memory there is to fill: --memory GIB")
    if sys.platform != "linux":
        raise BadInput("--memory needs Linux: other systems do not limit the memory of a process")
    python = python_with(gib)
    if gib >= 2**33:  # sh multiplies the KiB by 1024, in 64 bits
        raise BadInput(f"--memory {gib:g} is more GiB than any machine has")
    if run_python("-m", "ladder.batches", python=python).failure:  # it imports torch, no more
        raise BadInput(f"--memory {gib:g} is not enough to import PyTorch: give more")
    return python


def python_with(gib: float) -> list[str]:
    """Python with at most `gib` of data memory, on Linux."""
    return ["sh", "-c", f'ulimit -d {int(gib * 2**20)} && exec "$0" "$@"', sys.executable]


def search(row: Row, first: int, largest: int, attempt: Callable[[Row, int], str]) -> None:
    """Fill `row`: double B from `first` while it fits, then bisect."""
    high = largest + 1  # the smallest B that cannot be
    B = min(max(first, 1), largest)
    while row.B < B < high:
        outcome = row.tries[B] = attempt(row, B)
        # One line per finished try, no spinner: its thread would redraw while a try is timed.
        speed = f", {row.result['tok_per_s']:.0f} tok/s" if outcome == FITS else ""
        print(f"{row.script} B={B}: {outcome}{speed}", flush=True)
        if outcome == NO_MEMORY:
            high = B
        elif outcome != FITS:
            row.note = f"B={B} failed: {outcome}"
            return
        B = min(2 * row.B, largest) if high > largest else (row.B + high) // 2
    row.note = "" if row.B else "not even B=1 fits"
    if largest == row.B:
        row.note = "more may fit: here --max-batch or the corpus ends"


def try_batch(path: Path, folder: Path, python: list[str], flags: list[str], row: Row, B: int):
    """Run a script at B in its own process, and keep the run in `row` if it fits.

    Returns FITS, NO_MEMORY or another reason for the failure. Log and stderr go into one folder.
    """
    out = folder / f"{path.stem}.B{B}"
    out.mkdir()
    words = (path, *flags, f"--batch-size={B}", f"--log-dir={out}")
    env = {"TORCHINDUCTOR_CACHE_DIR": str(compile_cache(folder))}
    done = run_python(*words, python=python, folder=out, **env)
    (out / "stderr.txt").write_text(done.stderr, encoding="utf-8")
    if done.failure:
        # A process that could not allocate may crash while it exits: trust stderr, not the status.
        signs = (f"error {NO_MEMORY}", "std::bad_alloc", "error cuBLAS did not start")
        no_memory = any(words in done.stderr for words in signs)
        return NO_MEMORY if no_memory or done.status == -signal.SIGKILL else done.failure
    try:
        log = read_run(next(out.glob("*.log"), out))
    except BadInput as error:  # the search goes on with the other scripts
        return str(error)
    row.B, row.run, row.result = B, log.run, log.result
    return FITS


def report(rows: list[Row], gib: float | None, console: Console) -> None:
    """Print the settings that all runs share, and the table."""
    if run := next((row.run for row in rows if row.run), None):
        line = "{device}, torch {torch}, {model}, T={T}, {steps} steps, {data}, commit {commit}"
        line += "; not a measurement: it takes 3 steps" * (int(run["steps"]) < 3)
        limit = f", {gib:g} GiB of data memory" if gib else ""
        # The code may have changed: then the line names each commit.
        commits = " and ".join(dict.fromkeys(row.run["commit"] for row in rows if row.run))
        console.print(line.format(**run | {"commit": commits}) + limit, soft_wrap=True)
    numbers = ("largest B", "tok/s there", "peak memory", "tries")
    table = Table("rung", *(Column(name, justify="right") for name in numbers), "note")
    for row in rows:
        speed = f"{row.result['tok_per_s']:.0f}" if row.B else "–"
        peak = row.result.get("peak_bytes")
        memory = f"{peak / 1e9:.2f} GB" if peak else "–"
        table.add_row(row.script, str(row.B), speed, memory, str(len(row.tries)), row.note)
    console.print(table)
