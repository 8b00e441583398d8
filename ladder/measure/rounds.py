"""A climb under way: a copy of the code in its folder, and its runs in rounds.

Every run is a process of its own and starts from the copy. Every second round is backwards.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from tempfile import gettempdir

from ladder import machine
from ladder.checkout import COMMITTED, ROOT, RUNNING_CODE, changed, no_commit
from ladder.disk import make_folder, write_atomic
from ladder.errors import UsageError
from ladder.log import read_log
from ladder.measure import others, process, scripts
from ladder.measure.folder import OUT_OF_MEMORY, Climb, PlannedRun, Sources, stem_of
from ladder.measure.rows import check_comparable, whole_log
from ladder.text import printable, say


def begin(climb: Climb, sources: Sources, out: str | None):
    """Say what a climb lacks, and make its folder, `out` or a new one in runs/: climb.json and a
    copy of the code, in which its scripts have the names of `sources`."""
    for line in filter(None, (machine.unseen_gpu(), others.busy())):
        print(f"note  {line}")
    if not COMMITTED.fullmatch(climb.commit):
        why = no_commit() or f"with uncommitted changes, as of {', '.join(changed()[:1])}"
        print(f"note  commit={climb.commit} ({why}): the climb cannot be published")
    climb.folder = make_folder(out, climb.kind)
    code = {}
    for pattern in RUNNING_CODE:
        for path in ROOT.glob(pattern):
            code[scripts.relative_name(path)] = path.read_bytes()
    code |= sources | {"COMMIT": f"{climb.commit}\n"}
    for name, content in code.items():
        write_atomic(climb.folder / "code" / name, content)
    climb.save()


def climb_rounds(climb: Climb, scratch: Path, show_table: Callable):
    """Run what a climb still has to run, round by round, or until its time is over.

    A line begins with what is under way, and ends with what it found. show_table(folder) shows the
    rounds so far, before another one. What is compiled is kept in `scratch` for later rounds.
    """
    runs = climb.rounds * len(climb.runs)
    done = sum(map(len, climb.kept().values()))
    if done:
        say(
            f"going on with {climb.folder}: runs kept: {done}; its code/ runs, without your edits "
            "since"
        )
    limit = climb.max_minutes or math.inf
    if climb.minutes >= limit:  # it was over: as long again
        limit += climb.minutes
    before = None  # the round of the run before
    start = time.monotonic() - climb.minutes * 60
    for k, run in climb.due():
        if climb.minutes >= limit:
            how = f"ladder climb --resume {quote(str(climb.folder))}"
            say(f"{climb.max_minutes:g} min are over. As long again: {how}")
            break
        if before and k > before:
            show_table(climb.folder)
        before = k
        if len(climb.rates.get("peak_flops", [])) < k:
            print(f"a large {climb.peak_dtype} matmul, round {k}: ", end="", flush=True)
            for name, rate in large_matmul(climb.flags, climb.folder / "code").items():
                climb.rates.setdefault(name, []).append(rate)
            print(f"{climb.rates['peak_flops'][-1] / 1e12:.3g} TFLOP/s")
        print(f"{run.name}, round {k} of {climb.rounds}: ", end="", flush=True)
        news = run_and_record(climb, run, k, scratch)
        climb.minutes = (time.monotonic() - start) / 60
        climb.save()
        done += 1
        left = min((runs - done) * climb.minutes / done, limit - climb.minutes)
        time_left = f", about {math.ceil(left)} min left" if left > 0 else ""
        print(f"{news} ({done} of {runs} runs{time_left})")
    climb.ended = True
    climb.save()


def large_matmul(flags: list[str], package: Path) -> dict[str, float]:
    """What matmul.py measures on the device that these flags name. Raises UsageError."""
    done = process.start_python("-m", "ladder.measure.matmul", *flags, package=package)
    process.check_ended_well(done)
    return json.loads(done.stdout.splitlines()[-1])  # libraries may print above it


def run_and_record(climb: Climb, run: PlannedRun, k: int, scratch: Path) -> str:
    """Do one run, and save how it ended. Returns that in a few words.

    Its log becomes NAME.rK.log; if it failed, NAME.rK.failed says why in a line, and NAME.rK.stderr
    has all that it wrote.
    """
    stem = stem_of(run.name, k)
    failed = climb.folder / f"{stem}.failed"
    stderr = climb.folder / f"{stem}.stderr"
    for path in (failed, stderr):
        path.unlink(missing_ok=True)
    started = time.monotonic()
    before = others.cpu_seconds_of_others()
    log_dir = scratch / stem
    log_dir.mkdir()
    code = (climb.folder / "code").resolve()
    flags = flags_of(climb, run, k)
    done = process.start_python(
        code / run.path,
        *flags,
        "--log-dir",
        log_dir,
        package=code,
        TORCHINDUCTOR_CACHE_DIR=str(scratch / run.name),
    )
    after = others.cpu_seconds_of_others()
    if before is not None and after is not None:
        cores = round((after - before) / (time.monotonic() - started), 1)
        climb.load_during = max(cores, climb.load_during or 0.0)
    try:
        process.check_ended_well(done)
        return f"{keep_log(climb, log_dir, run, k):.0f} tok/s"
    except UsageError as error:
        why = without_paths(printable(str(error)), climb.folder)[:300]
    if run.B and re.search("^out of memory|memory is full$", why):
        why = OUT_OF_MEMORY
    write_atomic(failed, why)
    write_atomic(stderr, done.stderr)
    return f"failed: {why} (all of it: {stderr.name})"


def keep_log(climb: Climb, log_dir: Path, run: PlannedRun, k: int) -> float:
    """Keep the log of a run as NAME.rK.log. Returns its tok/s.

    Raises UsageError if there is no log, or one that cannot be compared with the others.
    """
    path = next(log_dir.glob("*.log"), None)
    if path is None:
        raise UsageError("it wrote no log to --log-dir")
    name = f"{stem_of(run.name, k)}.log"
    text = path.read_text("utf-8", "replace")
    log = whole_log(text, name)
    kept = {}  # a log of each round
    for logs in climb.kept().values():
        kept |= logs
    # Beside one of its round, if there is any: these have the same seed too.
    for other in sorted(kept, key=lambda other: other != k)[:1]:
        check_comparable(climb, [{k: log}, {other: read_log(kept[other])}])
    write_atomic(climb.folder / name, text)
    return 1e3 / log.ms_per_token


def without_paths(text: str, climb: Path) -> str:
    """`text` with names for folders of the user where a path begins with one: it may be sent."""
    home = os.path.expanduser("~")  # "~" if there is none; Path.home() would raise
    folders = {"CLIMB": climb, "CLONE": ROOT, "~": home, "TMPDIR": gettempdir()}
    for name, folder in folders.items():
        for place in (os.path.realpath(folder), str(folder)):
            if place == "/":
                continue
            text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![.-]?\w)", name, text)
    return text


def flags_of(climb: Climb, run: PlannedRun, k: int) -> list[str]:
    """The flags of a run.

    All runs of round k have the same seed, that of the climb plus k - 1. Where losses are compared,
    the rows are in the random order of this seed.
    """
    seed = climb.seed + k - 1
    flags = [*climb.flags, f"--seed={seed}"]
    if climb.shuffled:
        flags.append(f"--shuffle={seed}")
    if climb.data:
        flags.append(f"--data={climb.data}")
    flags += scripts.flags_to_measure(run.path)
    if run.B:
        flags.append(f"--batch-size={run.B}")
    return flags
