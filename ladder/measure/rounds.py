"""A climb under way: its folder with climb.json and a copy of the code, and its runs in rounds.

Every run is a process of its own and starts from the copy. Every second round is backwards.
"""

import argparse
import json
import math
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from ladder import cli, machine
from ladder.corpus import load_corpus
from ladder.errors import UsageError
from ladder.files import (
    COMMITTED,
    changed,
    commit,
    make_folder,
    no_commit,
    running_files,
    write_atomic,
)
from ladder.measure import process, scripts
from ladder.measure.folder import (
    OUT_OF_MEMORY,
    Climb,
    PlannedRun,
    climb_failures,
    climb_logs,
    too_large,
)
from ladder.measure.losses import MIN_STEPS
from ladder.measure.rows import ms_per_token, read_climb
from ladder.text import printable, show, without_home

IN_FLAGS = ["model", "steps", "batch_size", "seq_len", "shuffle", "device"]  # of climb.json
PASSED_ON = [*IN_FLAGS, "seed", "data"]  # to every script


# ------------------------------------------------------------------ how a climb begins


def begin(args, kind: str, chosen: list[Path]) -> Path:
    """Make the folder of a climb, with climb.json and a copy of the code.

    Raises UsageError and leaves no folder if something is wrong with what was asked for.
    """
    names = names_in_copy(chosen)
    asked = checked_flags(args)
    its_commit = commit()
    print_notes(its_commit)
    climb = Climb(
        kind=kind,
        started=f"{datetime.now():%Y-%m-%d %H:%M}",
        commit=its_commit,
        rounds=args.rounds or 3,
        scripts=[*names.values()],
        flags=process.given_flags(args, *IN_FLAGS),
        seed=asked.seed,
        shuffled=asked.shuffle is None and asked.steps >= MIN_STEPS,
        device=machine.device_name(asked.device),
        device_type=asked.device.type,
        system=f"{platform.system()} {platform.machine()}",
        cores=machine.usable_cores(),
        versions={name: version(name) for name in ("torch", "numpy")},
        peak_dtype=str(machine.half_precision(asked.device)).removeprefix("torch."),
        rates={},
        batch_sizes=sorted(set(args.batch_sizes or [])),
        data=args.data and str(Path(args.data).resolve()),
        quick=bool(args.quick),
        max_minutes=args.max_minutes,
    )
    folder = make_folder(args.out, kind)
    copy_code(folder / "code", names, its_commit)
    climb.write_to(folder)
    return folder


def names_in_copy(chosen: list[Path]) -> dict[Path, str]:
    """The name of each script in the copy of the code; those from outside lie beside baseline.py.

    Raises UsageError if one has the file name of another script: its logs would too; or a name with
    blanks, which the names of logs cannot have.
    """
    ours = scripts.known()
    of_stem = {path.stem: path for path in ours}
    names = {}
    for path in chosen:
        names[path] = scripts.relative_name(path) if path in ours else path.name
        if of_stem.setdefault(path.stem, path) != path:
            raise UsageError(f"{path}: another script has this file name too: rename yours")
        if not re.fullmatch(r"[\w.-]+\.py", path.name):
            raise UsageError(f"{path}: a script's name has letters, digits, _, - and . alone")
    return names


def checked_flags(args) -> argparse.Namespace:
    """The flags of every script, with the defaults of the device.

    Raises UsageError for a wrong device, T or corpus: every run would fail for it. On a GPU the B
    of all runs is decided here.
    """
    from ladder.batches import Batches  # it imports torch, which --help need not

    flags = process.given_flags(args, *PASSED_ON)
    if args.batch_sizes:
        flags.append(f"--batch-size={max(args.batch_sizes)}")
    asked = cli.parse_args(__doc__, flags)
    if asked.device.type == "cuda" and not args.batch_sizes:
        args.batch_size = asked.batch_size  # what is free, and so the default, may change
    Batches(load_corpus(args.data, show), asked.batch_size, asked.seq_len)
    return asked


def print_notes(its_commit: str):
    """Say what a climb lacks as it begins."""
    for line in filter(None, (machine.unseen_gpu(), machine.busy())):
        print(f"note  {line}")
    if not COMMITTED.fullmatch(its_commit):
        why = no_commit() or f"with uncommitted changes, as of {', '.join(changed()[:1])}"
        print(f"note  commit={its_commit} ({why}): the climb cannot be published")


def copy_code(code: Path, names: dict[Path, str], commit: str):
    """Copy what a climb starts and imports, and its scripts by these names."""
    copies = {path: scripts.relative_name(path) for path in running_files()}
    for path, name in (copies | names).items():
        target = code / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    write_atomic(code / "COMMIT", f"{commit}\n".encode())


# ------------------------------------------------------------------ its runs


def run_rounds(folder: Path, scratch: Path, console, show_table: Callable):
    """Run what a climb still has to run, round by round, or until its time is over.

    show_table() shows the rounds so far, before another one. What is compiled is kept in `scratch`
    for later rounds.
    """
    climb = Climb.read_from(folder)
    done = len(climb_logs(folder, climb))
    if done:
        what = f"going on with {folder}: runs kept: {done}"
        console.say(f"{what}; its code/ runs, without your edits since")
    before = None  # the round of the run before
    start = time.monotonic() - climb.minutes * 60
    for k, run in runs_due(folder, climb):
        if climb.minutes >= (climb.max_minutes or math.inf):
            break
        if before and k > before:
            show_table()
        before = k
        if len(climb.rates.get("peak_flops", [])) < k:
            console.now(f"round {k}: timing a large matmul")
            time_matmul(folder, climb, k)
        due = f"{run.name}, round {k} of {climb.rounds}"
        console.now(f"{due}: since {datetime.now():%H:%M}")
        news = run_and_record(folder, climb, run, k, scratch)
        climb.minutes = (time.monotonic() - start) / 60
        climb.write_to(folder)
        console.say(f"{due}: {news} ({progress(folder, climb)})")
    climb.ended = True
    climb.write_to(folder)


def runs_due(folder: Path, climb: Climb) -> Iterator[tuple[int, PlannedRun]]:
    """Yield the round and the run of all runs that have no log yet, in the order of their start.

    Out of memory is a result; a run that failed for another reason is due again.
    """
    forwards = climb.runs
    if climb.quick:
        forwards.insert(1, forwards.pop())  # the top is second: the time may not do for all
    for k in range(1, climb.rounds + 1):
        # Every second round is backwards: what a run does to the next one, such as heat, cancels.
        for run in forwards if k % 2 else reversed(forwards):
            full = too_large(climb, climb_failures(folder, climb))
            if (run.name, k) not in climb_logs(folder, climb) and run.name not in full:
                yield k, run


def progress(folder: Path, climb: Climb) -> str:
    """`3 of 26 runs, about 12 min left`, if the others take as long as the runs so far."""
    runs = climb.rounds * len(climb.runs)
    done = len(climb_logs(folder, climb)) + len(climb_failures(folder, climb))
    text = f"{done} of {runs} runs"
    if 0 < done < runs:
        text += f", about {math.ceil((runs - done) * climb.minutes / done)} min left"
    return text


def time_matmul(folder: Path, climb: Climb, k: int):
    """Time a large matmul as round k begins. Raises UsageError if that fails."""
    found = large_matmul(climb.flags, folder / "code")
    for name, rate in found["rates"].items():
        climb.rates.setdefault(name, []).append(rate)
    climb.write_to(folder)


def large_matmul(flags: list[str], package: Path) -> dict:
    """What matmul.py measures on the device that these flags name. Raises UsageError."""
    device = [flag for flag in flags if flag.startswith("--device=")]
    done = process.run_python("-m", "ladder.measure.matmul", *device, package=package)
    process.check_ended_well(done)
    return json.loads(done.stdout.splitlines()[-1])  # libraries may print above it


def run_and_record(folder: Path, climb: Climb, run: PlannedRun, k: int, scratch: Path) -> str:
    """Do one run, and save how it ended. Returns that in a few words.

    Its log becomes NAME.rK.log; if it failed, NAME.rK.failed says why in a line, and NAME.rK.stderr
    has all that it wrote.
    """
    failed = folder / f"{run.name}.r{k}.failed"
    stderr = failed.with_suffix(".stderr")
    failed.unlink(missing_ok=True)
    stderr.unlink(missing_ok=True)
    started = time.monotonic()
    before = machine.cpu_seconds_of_others()
    log_dir = scratch / failed.stem
    log_dir.mkdir(parents=True)
    done = process.run_python(
        *words_of(folder, climb, run, k),
        "--log-dir",
        log_dir,
        package=(folder / "code").resolve(),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / run.name),
    )
    if before is not None:
        took = machine.cpu_seconds_of_others() - before
        cores = round(took / (time.monotonic() - started), 1)
        climb.load_during = max(cores, climb.load_during or 0.0)
    try:
        process.check_ended_well(done)
        return f"{keep_log(folder, log_dir, run, k):.0f} tok/s"
    except UsageError as error:
        why = without_home(printable(str(error)))
    if run.B and re.search("^out of memory|memory is full$", why):
        why = OUT_OF_MEMORY
    write_atomic(failed, why.encode())
    write_atomic(stderr, done.stderr.encode())
    return f"failed: {why} (all of it: {stderr.name})"


def keep_log(folder: Path, log_dir: Path, run: PlannedRun, k: int) -> float:
    """Keep the log of a run as NAME.rK.log. Returns its tok/s.

    Raises UsageError if there is no log, or one that cannot be compared with the others.
    """
    logs = list(log_dir.glob("*.log"))
    if not logs:
        raise UsageError("it wrote no log to --log-dir")
    path = folder / f"{run.name}.r{k}.log"
    write_atomic(path, logs[0].read_bytes())
    try:
        _, rows = read_climb(folder)
    except UsageError:
        path.unlink()
        raise
    (row,) = (row for row in rows if row.name == run.name)
    return 1e3 / ms_per_token(row.logs[k])


def words_of(folder: Path, climb: Climb, run: PlannedRun, k: int) -> list:
    """The script of a run and its flags, as words of a command line.

    All runs of round k have the same seed, that of the climb plus k - 1. Where losses are compared,
    the rows are in the random order of this seed.
    """
    seed = climb.seed + k - 1
    words = [(folder / "code" / run.path).resolve(), *climb.flags, f"--seed={seed}"]
    if climb.shuffled:
        words.append(f"--shuffle={seed}")
    if climb.data:
        words.append(f"--data={climb.data}")
    if run.path in (scripts.DDP.name, scripts.FSDP.name):
        words.append("--ckpt-every=0")
    if run.B:
        words.append(f"--batch-size={run.B}")
    return words
