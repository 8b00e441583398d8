"""A climb under way: its folder with climb.json and a copy of the code, and its runs in rounds.

Every run is a process of its own and starts from the copy. Every second round is backwards.
"""

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ladder import cli, machine
from ladder.corpus import load_corpus
from ladder.errors import UsageError
from ladder.files import (
    COMMITTED,
    ROOT,
    SCRIPTS,
    commit,
    make_folder,
    running_files,
    write_atomic,
)
from ladder.log import Log, parse_log
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
from ladder.measure.rows import check_comparable, check_whole, ms_per_token
from ladder.text import printable, show

OVER = "stopped, the time is over"
IN_FLAGS = ["model", "steps", "batch_size", "seq_len", "shuffle", "device"]  # of climb.json
PASSED_ON = [*IN_FLAGS, "seed", "data"]  # to every script


def begin(args, kind: str, chosen: list[Path]) -> Path:
    """Make the folder of a climb, with climb.json and a copy of the code; time a large matmul.

    Raises UsageError and leaves no folder if something is wrong with what was asked for.
    """
    started = time.monotonic()
    chosen = list(dict.fromkeys(chosen))  # one named twice counts once
    own = scripts_from_outside(chosen)
    asked = checked_flags(args)
    its_commit = commit()
    load = extra(machine.load_average) or 0.0
    print_notes(its_commit, load)
    folder = make_folder(args.out, kind)
    print("timing a large matmul, as before each round: up to half a minute")
    flags = process.given_flags(args, *IN_FLAGS)
    found = large_matmul(flags)
    climb = Climb(
        kind=kind,
        started=f"{datetime.now():%Y-%m-%d %H:%M}",
        commit=its_commit,
        rounds=args.rounds or 3,
        scripts=[path.name if path in own else scripts.relative_name(path) for path in chosen],
        flags=flags,
        seed=asked.seed,
        shuffled=asked.shuffle is None and asked.steps >= MIN_STEPS,
        device=found["device"],
        device_type=found["device_type"],
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        versions=versions(),
        peak_dtype=found["peak_dtype"],
        rates={name: [rate] for name, rate in found["rates"].items()},
        clocks={"before": found["clocks"]},
        batch_sizes=sorted(set(args.batch_sizes or [])),
        data=args.data and str(Path(args.data).resolve()),
        quick=bool(args.quick),
        max_minutes=args.max_minutes,
        minutes=(time.monotonic() - started) / 60,
        load_before=round(load, 1),
    )
    copy_code(folder / "code", own, climb.commit)
    climb.write_to(folder)
    return folder


def print_notes(its_commit: str, load: float):
    """Say what a climb lacks as it begins."""
    lacking = [extra(machine.unseen_gpu), extra(machine.busy, load)]
    if not COMMITTED.fullmatch(its_commit):
        lacking.append(f"commit={its_commit}: only committed code can be published")
    for line in filter(None, lacking):
        print(f"note  {line}")


def extra(measure: Callable, *arguments):
    """What a note is made of; None if it cannot be measured: a climb goes on without."""
    try:
        return measure(*arguments)
    except Exception:
        return None


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that runs import."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "tiktoken", "transformers"):
        if find_spec(name):
            found[name] = version(name)
    return found


def scripts_from_outside(chosen: list[Path]) -> list[Path]:
    """Those of the scripts that are not this project's.

    Raises UsageError if one has the file name of another script: its logs would too; or a name with
    blanks, which the names of logs cannot have.
    """
    ours = scripts.all_scripts() + scripts.transformers_scripts()
    ours += [ROOT / name for name in SCRIPTS]
    own = [path for path in chosen if path not in ours]
    names = {path.stem for path in ours}
    for path in own:
        if path.stem in names:
            raise UsageError(f"{path}: another script has this file name too: rename yours")
        if not re.fullmatch(r"[\w.-]+\.py", path.name):
            how = "letters, digits, _, - and . alone, and .py at the end"
            raise UsageError(f"{path}: the name of a script has {how}: rename it")
        names.add(path.stem)
    return own


def checked_flags(args) -> argparse.Namespace:
    """The flags of every script, with the defaults of the device.

    Raises UsageError for a wrong --out, device, T or corpus: every run would fail for it. On a GPU
    the B of all runs is decided here.
    """
    from ladder.batches import Batches  # it imports torch, which --help need not

    if args.out and Path(args.out).exists():
        raise UsageError(f"{args.out} is there already: choose another --out, or --resume that")
    flags = process.given_flags(args, *PASSED_ON)
    if args.batch_sizes:
        flags.append(f"--batch-size={max(args.batch_sizes)}")
    asked = cli.parse_args(__doc__, flags)
    if asked.device.type == "cuda" and not args.batch_sizes:
        args.batch_size = asked.batch_size  # what is free, and so the default, may change
    Batches(load_corpus(args.data, show), asked.batch_size, asked.seq_len)
    return asked


def copy_code(code: Path, own: list[Path], commit: str):
    """Copy what a climb starts and imports. Scripts from outside (`own`) go beside baseline.py."""
    copies = {path: path.name for path in own}
    for path in running_files():
        copies[path] = path.relative_to(ROOT)
    for path, name in copies.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, code / name)
    write_atomic(code / "COMMIT", f"{commit}\n".encode())


def large_matmul(flags: list[str], package: Path = ROOT) -> dict:
    """What matmul.py measures on the device that these flags name. Raises UsageError."""
    device = [flag for flag in flags if flag.startswith("--device=")]
    done = process.run_python("-m", "ladder.measure.matmul", *device, package=package)
    if done.failure:
        raise UsageError(done.failure)
    return json.loads(done.stdout.splitlines()[-1])  # libraries may print above it


def run_rounds(folder: Path, scratch: Path, console, show_table: Callable):
    """Run what a climb still has to run, round by round, or until its time is over.

    show_table() shows the rounds so far, before another one. What is compiled is kept in `scratch`
    for later rounds.
    """
    climb = Climb.read_from(folder)
    kept = climb_logs(folder, climb)
    if kept:
        what = f"going on with {folder}: runs kept: {len(kept)}"
        console.say(f"{what}; its code/ runs, without your edits since")
    left = runs_left(folder, climb)
    done = climb.rounds * len(climb.runs) - len(left)
    newest = max((k for _, k in kept), default=1)
    while left and seconds_left(climb) > 0:
        k, run = left[0]
        if k > newest:
            minutes_a_round = climb.minutes / (k - 1)
            if minutes_a_round * 60 > seconds_left(climb):
                break
            show_table()
            newest = k
        if len(climb.rates["peak_flops"]) < k:  # begin() timed that of round 1
            console.now(f"round {k}: timing a large matmul")
            time_matmul(folder, climb, k)
            rate = climb.rates["peak_flops"][-1] / 1e12
            console.say(f"round {k}: a large matmul runs at {rate:.3g} TFLOP/s")
            continue
        due = f"{run.name}, round {k} of {climb.rounds}"
        console.now(f"{due}: since {datetime.now():%H:%M} ({forecast(climb, done, len(left))})")
        news = run_and_record(folder, climb, run, k, scratch)
        if news != OVER:
            del left[0]
            done += 1
        full = too_large(climb, climb_failures(folder, climb))
        left = [one for one in left if one[1].name not in full]
        console.say(f"{due}: {news} ({forecast(climb, done, len(left))})")
    climb.ended = True
    climb.write_to(folder)


def runs_left(folder: Path, climb: Climb) -> list[tuple[int, PlannedRun]]:
    """The runs that have no log yet, each with its round, in the order in which they run.

    What was out of memory is a result; what failed else is due again.
    """
    forwards = climb.runs
    if climb.quick:
        forwards.insert(1, forwards.pop())  # the top is second: the time may not do for all
    ended = climb_logs(folder, climb)
    full = too_large(climb, climb_failures(folder, climb))
    left = []
    for k in range(1, climb.rounds + 1):
        # Backwards, what a run does to the next one, such as heat, cancels out.
        for run in forwards if k % 2 else reversed(forwards):
            if (run.name, k) not in ended and run.name not in full:
                left.append((k, run))
    return left


def seconds_left(climb: Climb) -> float:
    """How long a climb may still take; infinite without --max-minutes."""
    limit = climb.max_minutes or math.inf
    return (limit - climb.minutes) * 60


def forecast(climb: Climb, done: int, left: int) -> str:
    """`3 of 26 runs, about 12 min left`: as many as the runs so far took, after a round."""
    text = f"{done} of {done + left} runs"
    if left == 0 or done < len(climb.runs):
        return text
    minutes = min(left * climb.minutes / done, seconds_left(climb) / 60)
    return f"{text}, about {math.ceil(minutes)} min left"


def time_matmul(folder: Path, climb: Climb, k: int):
    """Time the large matmul again, as round k begins."""
    started = time.monotonic()
    found = large_matmul(climb.flags, folder / "code")
    for name, rate in found["rates"].items():
        climb.rates[name].append(rate)
    climb.clocks[f"round {k}"] = found["clocks"]
    climb.minutes += (time.monotonic() - started) / 60


def run_and_record(folder: Path, climb: Climb, run: PlannedRun, k: int, scratch: Path) -> str:
    """Do one run, and save how it ended. Returns that in a few words.

    Its log becomes NAME.rK.log; if it failed, NAME.rK.failed says why in a line.
    """
    failed = folder / f"{run.name}.r{k}.failed"
    failed.unlink(missing_ok=True)
    started = time.monotonic()
    others = extra(machine.cpu_seconds_of_others)
    try:
        news = f"{run_once(folder, climb, run, k, scratch):.0f} tok/s"
    except subprocess.TimeoutExpired:
        news = OVER
    except UsageError as error:
        why = printable(str(error)).replace(str(Path.home()), "~")  # it may be sent
        news = f"failed: {why}"
        if run.B and re.search("^out of memory|memory is full$", why):
            news = why.partition(":")[0]
            why = OUT_OF_MEMORY
        write_atomic(failed, why.encode())
    seconds = time.monotonic() - started
    climb.minutes += seconds / 60
    others_now = extra(machine.cpu_seconds_of_others)
    if others is not None and others_now is not None:
        cores = round((others_now - others) / seconds, 1)
        climb.load_during = max(cores, climb.load_during or 0.0)
    climb.write_to(folder)
    return news


def run_once(folder: Path, climb: Climb, run: PlannedRun, k: int, scratch: Path) -> float:
    """One run in a process of its own, whose log becomes NAME.rK.log. Returns its tok/s.

    Raises UsageError, saying why, if it failed; NAME.rK.stderr then has all that it wrote.
    """
    name = f"{run.name}.r{k}"
    log_dir = scratch / name
    log_dir.mkdir(parents=True)
    left = seconds_left(climb)
    done = process.run_python(
        *words_of(folder, climb, run, k),
        "--log-dir",
        log_dir,
        package=(folder / "code").resolve(),
        timeout=left if left < math.inf else None,
        TORCHINDUCTOR_CACHE_DIR=str(scratch / run.name),
    )
    stderr = folder / f"{name}.stderr"
    write_atomic(stderr, done.stderr.encode())
    if done.failure:
        raise UsageError(done.failure)
    logs = list(log_dir.glob("*.log"))
    if not logs:
        raise UsageError("it wrote no log to --log-dir")
    text = logs[0].read_text("utf-8", "replace")
    log = parse_log(text, "its log")
    check_whole("its log", log)
    check_like_the_others(folder, climb, log, k)
    write_atomic(folder / f"{name}.log", text.encode())
    stderr.unlink()
    return 1e3 / ms_per_token(log)


def words_of(folder: Path, climb: Climb, run: PlannedRun, k: int) -> list:
    """The script of a run and its flags, as words of a command line.

    Each round has its own seed, the same for all runs: the first one's, and one more for each
    round. Runs whose losses are compared read their rows in random order, the same in a round.
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


def check_like_the_others(folder: Path, climb: Climb, log: Log, k: int):
    """Raise UsageError if this log of round k does not compare with those before it."""
    earlier = {}
    for (name, of_round), text in climb_logs(folder, climb).items():
        if of_round in (k, 1) and of_round not in earlier:
            earlier[of_round] = parse_log(text, name)
    check_comparable("this climb", climb, [{k: log}, earlier])
