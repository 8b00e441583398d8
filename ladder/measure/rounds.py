"""A climb under way: its folder with climb.json and a copy of the code, and its runs in rounds.

Every run is a process of its own and starts from the copy. Every second round is backwards.
"""

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
    no_commit,
    running_files,
    write_atomic,
)
from ladder.log import parse_log, read_log
from ladder.measure import process, scripts
from ladder.measure.climb import OUT_OF_MEMORY, SCRIPT, Climb, PlannedRun, climb_logs
from ladder.measure.losses import MIN_STEPS
from ladder.measure.rows import check_comparable, check_whole, ms_per_token
from ladder.text import printable, show

PASSED_ON = [name for name in cli.FLAGS if name != "log_dir"]  # to every script


def begin(args, kind: str, chosen: list[Path]) -> Path:
    """Make the folder of a climb, with climb.json and a copy of the code; time a large matmul.

    Raises UsageError and leaves no folder if something is wrong with what was asked for.
    """
    started = time.monotonic()
    chosen = list(dict.fromkeys(chosen))  # one named twice counts once
    own = scripts_from_outside(chosen)
    check_flags(args)
    unseen = machine.unseen_gpu()
    if unseen:
        print(f"note  {unseen}")
    measured_commit = commit()
    if not COMMITTED.fullmatch(measured_commit):
        why = no_commit() or "with uncommitted changes"
        print(f"note  commit={measured_commit} ({why}): the climb cannot be published")
    load = machine.load_average()
    folder = make_folder(args.out, kind)
    print("timing a large matmul, as before each round: up to half a minute")
    measured = large_matmul(process.given_flags(args, "device"))
    packages = filter(find_spec, ("torch", "numpy", "tiktoken", "transformers"))
    versions = {"python": platform.python_version()}
    climb = Climb(
        kind=kind,
        started=f"{datetime.now():%Y-%m-%d %H:%M}",
        commit=measured_commit,
        rounds=args.rounds or 3,
        rounds_begun=1,
        scripts=[path.name if path in own else scripts.relative_name(path) for path in chosen],
        flags=process.given_flags(args, *(name for name in PASSED_ON if name != "data")),
        device=measured["device"],
        device_type=measured["device_type"],
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        versions=versions | {name: version(name) for name in packages},
        peak_dtype=measured["peak_dtype"],
        rates={name: [rate] for name, rate in measured["rates"].items()},
        clocks={"before": measured["clocks"]},
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


def scripts_from_outside(chosen: list[Path]) -> list[Path]:
    """Those of the scripts that are not this project's.

    Raises UsageError if one of them has the file name of another script: its logs would too; or if
    its name is none that climb.json may have.
    """
    ours = scripts.all_scripts() + scripts.transformers_scripts()
    ours += [ROOT / name for name in SCRIPTS]
    own = [path for path in chosen if path not in ours]
    names = {path.stem for path in ours}
    for path in own:
        if not SCRIPT.fullmatch(path.name):
            how = "letters, digits, _, - and . alone, and .py at the end"
            raise UsageError(f"{path}: the name of a script has {how}: rename it")
        if path.stem in names:
            raise UsageError(f"{path}: another script has this file name too: rename yours")
        names.add(path.stem)
    return own


def check_flags(args):
    """Raise UsageError for a wrong --out, device, T or corpus: every run would fail for it.

    On a GPU the B of all runs is decided here.
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


class Rounds:
    """Runs what a climb still has to run, round by round.

    say(line) prints a line, and now(line) one that the next replaces; show_table() shows the rounds
    so far, before another one. What is compiled is kept in `scratch` for later rounds.
    """

    def __init__(self, folder: Path, scratch: Path, say, now, show_table: Callable):
        self.folder = folder
        self.scratch = scratch
        self.say = say
        self.now = now
        self.show_table = show_table
        self.climb = Climb.read_from(folder)
        for name, why in list(self.climb.failures.items()):
            if why != OUT_OF_MEMORY:  # that is a result; what failed else is due again
                del self.climb.failures[name]
        ended = climb_logs(folder, self.climb)
        self.done = len(ended) + len(self.climb.failures)
        self.left = self._runs_left(ended)
        if ended:
            kept = f"going on with {folder}: runs kept: {len(ended)}"
            say(f"{kept}; its code/ runs, without your edits since")

    def _runs_left(self, ended: dict) -> list[tuple[int, PlannedRun]]:
        """The runs that are not done yet, each with its round, in the order in which they run."""
        forwards = self.climb.runs
        if self.climb.quick:
            forwards.insert(1, forwards.pop())  # the top is second: the time may not do for all
        too_large = self.climb.out_of_memory()
        left = []
        for k in range(1, self.climb.rounds + 1):
            # Backwards, what a run does to the next one, such as heat, cancels out.
            for run in forwards if k % 2 else reversed(forwards):
                failed = f"{run.name}.r{k}" in self.climb.failures
                if (run.name, k) not in ended and not failed and run.name not in too_large:
                    left.append((k, run))
        return left

    def run(self) -> Climb:
        """Run all of it, or until the time is over. Returns the climb."""
        while self.left and self.seconds_left() > 0:
            k, run = self.left[0]
            if k > self.climb.rounds_begun:
                if not self.another_round_fits():
                    break
                self.show_table()
                self.climb.rounds_begun = k
            if len(self.climb.rates["peak_flops"]) < k:  # begin() timed that of round 1
                self.time_matmul(k)
                continue
            due = f"{run.name}, round {k} of {self.climb.rounds}"
            self.now(f"{due}: since {datetime.now():%H:%M} ({self.forecast()})")
            del self.left[0]
            news = self.run_and_record(run, k)
            self.done += 1
            self.say(f"{due}: {news} ({self.forecast()})")
        return self.climb

    def seconds_left(self) -> float:
        """How long the climb may still take; infinite without --max-minutes."""
        limit = self.climb.max_minutes or math.inf
        return (limit - self.climb.minutes) * 60

    def another_round_fits(self) -> bool:
        """Whether a round of mean length would end in time."""
        mean_seconds = self.climb.minutes / self.climb.rounds_begun * 60
        return mean_seconds <= self.seconds_left()

    def forecast(self) -> str:
        """`3 of 26 runs, about 12 min left`: as many as the runs so far took, after a round."""
        left = len(self.left)
        text = f"{self.done} of {self.done + left} runs"
        if left == 0 or self.done < len(self.climb.runs):
            return text
        minutes = left * self.climb.minutes / self.done
        minutes = min(minutes, self.seconds_left() / 60)
        return f"{text}, about {math.ceil(minutes)} min left"

    def time_matmul(self, k: int):
        """Time the large matmul again, as a round begins."""
        self.now(f"round {k}: timing a large matmul")
        started = time.monotonic()
        measured = large_matmul(self.climb.flags, self.folder / "code")
        for name, rate in measured["rates"].items():
            self.climb.rates[name].append(rate)
        self.climb.minutes += (time.monotonic() - started) / 60
        rate = measured["rates"]["peak_flops"] / 1e12
        self.say(f"round {k}: a large matmul runs at {rate:.3g} TFLOP/s")

    def run_and_record(self, run: PlannedRun, k: int) -> str:
        """Do one run, and save in climb.json how it ended. Returns that in a few words."""
        started = time.monotonic()
        others = machine.cpu_seconds_of_others()
        try:
            news = f"{self.run_once(run, k):.0f} tok/s"
        except subprocess.TimeoutExpired:
            news = "stopped, the time is over"
            self.left.insert(0, (k, run))  # it is still to be done
            self.done -= 1
        except UsageError as error:
            why = printable(str(error))
            news = f"failed: {why}"
            if run.B and re.search("^out of memory|memory is full$", why):
                news = why.partition(":")[0]
                why = OUT_OF_MEMORY
            self.climb.failures[f"{run.name}.r{k}"] = why
            too_large = self.climb.out_of_memory()
            self.left = [due for due in self.left if due[1].name not in too_large]
        seconds = time.monotonic() - started
        self.climb.minutes += seconds / 60
        if others is not None:
            cores = round((machine.cpu_seconds_of_others() - others) / seconds, 1)
            self.climb.load_during = max(cores, self.climb.load_during or 0.0)
        self.climb.write_to(self.folder)
        return news

    def run_once(self, run: PlannedRun, k: int) -> float:
        """One run in a process of its own, whose log becomes NAME.rK.log. Returns its tok/s.

        Raises UsageError, saying why, if it failed; NAME.rK.failed then has its stderr.
        """
        name = f"{run.name}.r{k}"
        failed = self.folder / f"{name}.failed"
        failed.unlink(missing_ok=True)
        log_dir = self.scratch / name
        log_dir.mkdir(parents=True)
        left = self.seconds_left()
        done = process.run_python(
            *self.words_of(run, k),
            "--log-dir",
            log_dir,
            package=(self.folder / "code").resolve(),
            timeout=left if left < math.inf else None,
            TORCHINDUCTOR_CACHE_DIR=str(self.scratch / run.name),
        )
        try:
            path = log_of(done, log_dir)
            log = read_log(path)
            check_whole("its log", log)
            self.check_like_the_others(log, k)
        except UsageError as error:
            write_atomic(failed, done.stderr.encode())
            why = str(error).replace(f"{log_dir}{os.sep}", "")
            raise UsageError(why.replace(str(Path.home()), "~")) from None  # it may be sent
        write_atomic(self.folder / f"{name}.log", path.read_bytes())
        return 1e3 / ms_per_token(log)

    def words_of(self, run: PlannedRun, k: int) -> list:
        """The script of a run and its flags, as words of a command line. Each round has its own
        seed, the same for all runs: the first one's, and one more for each round. Runs whose losses
        are compared read their rows in random order, the same for all runs of a round."""
        asked = cli.parse_args(__doc__, self.climb.flags)
        seed = asked.seed + k - 1
        path = (self.folder / "code" / run.path).resolve()
        words = [path, *self.climb.flags, f"--seed={seed}"]
        if asked.shuffle is None and asked.steps >= MIN_STEPS:
            words.append(f"--shuffle={seed}")
        if self.climb.data:
            words.append(f"--data={self.climb.data}")
        if run.path in (scripts.DDP.name, scripts.FSDP.name):
            words.append("--ckpt-every=0")
        if run.B:
            words.append(f"--batch-size={run.B}")
        return words

    def check_like_the_others(self, log, k: int):
        """Raise UsageError if this log of round k does not compare with those before it."""
        earlier = {}
        for (name, of_round), text in climb_logs(self.folder, self.climb).items():
            if of_round in (k, 1) and of_round not in earlier:
                earlier[of_round] = parse_log(text, name)
        check_comparable("this climb", self.climb, [{k: log}, earlier])


def log_of(done: process.Finished, log_dir: Path) -> Path:
    """The log that a run wrote. Raises UsageError if it failed or wrote none."""
    if done.failure:
        raise UsageError(done.failure)
    logs = list(log_dir.glob("*.log"))
    if not logs:
        raise UsageError("it wrote no log to --log-dir")
    return logs[0]
