"""Run rungs one after the other, several times over, and say what each one gains
on this machine.

    ladder climb                       all rungs, three times
    ladder climb --quick               a first look: a few rungs, five minutes
    ladder climb 0 3 5-7 --rounds 5    some of them; or a path to a script
    ladder climb --rounds 20 --max-minutes 240
                                       as many runs as begin in four hours
    ladder climb --without 3 5         the top rung without 03 and without 05
                                       (no number: each rung in turn)
    ladder climb 25 --without 22 24    another top than this device's
    ladder climb 0 3 10 --batch-sizes 1 2 4
                                       tokens per second and memory by B
    ladder climb transformers 0 10     beside transformers' GPT-2, compiled and
                                       in plain FP32
    ladder climb --resume runs/climb-… go on with a climb that was stopped; where
                                       its time was over, for as long again

Every run is a process of its own. The order is 0, 1, …, top, then top, …, 0,
and so on: a machine that slows down slows neighbours alike. A quick climb goes
from rung 0 to the top, and down from there. Round k trains from seed + k - 1. A gain is the
geometric mean, over the rounds, of the ratios between neighbours, with its
95 % interval.
From 100 steps on, the table also says what a rung does to the loss, and how
long it takes to reach the final loss of the first one. All runs start from a
copy of the code in the climb's folder: edit, or switch branches, meanwhile.
Nothing that git tracks is changed. If a run fails, the others go on, and the
climb ends with status 1.

What a rung gains depends on the order. --without compares the top script with
the top script less the change of one rung. If a later rung changed the same
lines, this is not possible: the rung is named and left out. With
--batch-sizes, out of memory is a result, and larger sizes are not tried.
"""

import platform
import re
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from ladder import cli, machine
from ladder.checkout import commit
from ladder.corpus import load_corpus
from ladder.disk import lock
from ladder.errors import UsageError
from ladder.measure import rounds, scripts
from ladder.measure.folder import OUT_OF_MEMORY, STARTED, Climb, Sources
from ladder.measure.losses import MIN_STEPS
from ladder.measure.rows import Results, read_climb
from ladder.measure.without import without
from ladder.show import tables
from ladder.show.console import screen
from ladder.text import say

IN_FLAGS = ["model", "steps", "batch_size", "seq_len", "shuffle", "device"]  # of climb.json
PASSED_ON = [*IN_FLAGS, "seed", "data"]  # to every script


@dataclass(frozen=True)
class Size:
    """How much a climb runs unless more is asked for."""

    rounds: int
    rungs: tuple[int, ...] = ()  # by place; -1: the last; none: all of the device
    steps: int | None = None  # None: the scripts' default
    minutes: int | None = None  # None: no limit


USUAL = Size(rounds=3)
# Without CUDA 02, 04 and 06 to 10 hardly change the time of a step, and to run one of them takes up
# to a minute.
QUICK = {
    "cuda": Size(rounds=3, rungs=(0, 1, 2, 3, 4, 5, -1), steps=12, minutes=5),
    "cpu": Size(rounds=1, rungs=(0, 1, 3, 5, -1), steps=4, minutes=5),
}
QUICK["mps"] = QUICK["cpu"]


def add_arguments(parser: ArgumentParser):
    add = parser.add_argument
    add("rungs", nargs="*", help=scripts.RUNGS)
    # None, not False: --resume refuses whatever was given beside it.
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--quick",
        action="store_true",
        default=None,
        help="a first look in five minutes: a few rungs, few steps",
    )
    one.add_argument(
        "--without",
        nargs="*",
        metavar="RUNG",
        help=f"the top rung, and it without each of these (or of all): {scripts.A_RUNG}",
    )
    one.add_argument(
        "--batch-sizes",
        nargs="+",
        type=cli.positive,
        metavar="B",
        help="run each rung at each of these B",
    )
    add(
        "--resume",
        type=cli.path,
        metavar="FOLDER",
        help="go on with this climb that was stopped, and run again what failed",
    )
    add("--rounds", type=cli.positive, help="how often each rung runs (default: 3)")
    add("--max-minutes", type=cli.positive, metavar="MINUTES", help="begin no run after this time")
    add("--out", type=cli.path, help="new folder for code, logs and results (default: runs/…)")
    cli.add_flags(parser.add_argument_group("flags of every script"), *PASSED_ON)


def main(args: Namespace) -> int:
    """The subcommand. Returns the exit status."""
    import scipy.special  # noqa: F401  what the table needs: else it fails after hours

    if args.resume:
        climb = stopped(args)
    else:
        climb, sources = plan(args)
        rounds.begin(climb, sources, args.out)
    go_on(climb)
    return report(climb.folder)


# ------------------------------------------------------------------ what is asked for


def stopped(args: Namespace) -> Climb:
    """The climb to go on with. Raises UsageError if there is none, or more was asked for."""
    for name, value in vars(args).items():
        if name != "resume" and value not in (None, []):
            raise UsageError("--resume does what the climb was asked for: give nothing else")
    climb = Climb.read_from(Path(args.resume))
    if not (climb.folder / "code").is_dir():  # a published one
        raise UsageError(f"{climb.folder} is no climb to go on with: it has no code/")
    return climb


def plan(args: Namespace) -> tuple[Climb, Sources]:
    """What the command line asks for, with the defaults of the device: a climb that has not begun,
    and its scripts by their names in its copy of the code.

    Raises UsageError if that makes no climb, or every run would fail for it.
    """
    from ladder.batches import Batches  # it imports torch, which --help need not

    device_type = cli.pick_device(args.device).type
    size = QUICK[device_type] if args.quick else USUAL
    kind, sources = choose(args, size, device_type)
    batch_sizes = sorted(set(args.batch_sizes or []))
    asked = cli.filled_in(
        args,
        steps=args.steps or size.steps,
        batch_size=batch_sizes[-1] if batch_sizes else args.batch_size,
    )
    Batches(load_corpus(args.data, say), asked.batch_size, asked.seq_len)
    climb = Climb(
        kind=kind,
        started=f"{datetime.now():{STARTED}}",
        commit=commit(),
        rounds=args.rounds or size.rounds,
        scripts=[*sources],
        # All of them: what is free on a GPU, and so the default of B, may change.
        flags=cli.given_flags(asked, *IN_FLAGS),
        seed=asked.seed,
        shuffled=asked.shuffle is None and asked.steps >= MIN_STEPS,
        device=machine.device_name(asked.device),
        device_type=device_type,
        system=f"{platform.system()} {platform.machine()}",
        cores=machine.usable_cores(),
        versions={name: version(name) for name in ("torch", "numpy")},
        peak_dtype=str(machine.half_precision(asked.device)).removeprefix("torch."),
        rates={},
        batch_sizes=batch_sizes,
        data=args.data and str(Path(args.data).resolve()),
        quick=bool(args.quick),
        max_minutes=args.max_minutes or size.minutes,
    )
    return climb, sources


def choose(args: Namespace, size: Size, device_type: str) -> tuple[str, Sources]:
    """The kind of the climb and its scripts."""
    rungs = scripts.rungs_for(device_type)
    if args.without is not None:
        return "without", without_each(args.rungs, args.without, rungs)
    if args.batch_sizes and args.batch_size:
        raise UsageError("give --batch-size or --batch-sizes, not both")
    chosen = scripts.select(args.rungs) or [rungs[k] for k in size.rungs] or rungs
    of_transformers = scripts.transformers_scripts()
    if set(chosen) & set(of_transformers) and find_spec("transformers") is None:
        raise UsageError("transformers is not installed: pip install -e '.[transformers]'")
    kind = "climb"
    if args.batch_sizes:
        kind = "batch-sizes"
    elif chosen[0] in of_transformers:
        kind = "transformers"
    return kind, sources_of(chosen)


def without_each(tops: list[str], left_out: list[str], rungs: list[Path]) -> Sources:
    """The top rung, and it without each of the others named, or of all."""
    if len(tops) > 1:
        raise UsageError("name one top rung before --without, and what to leave out after it")
    if tops:
        rungs = scripts.select([f"0-{tops[0]}"])
    top = rungs[-1]
    sources = sources_of([top])
    for rung in scripts.select(left_out) or rungs[1:]:
        source = None
        if rung in rungs[1:]:
            source = without(scripts.base_of(rung), rung, top)
        if source:
            sources[f"without_{rung.name}"] = source
        else:
            print(
                f"{rung.stem} cannot be left out: it is not below {top.stem}, or a later rung "
                "changed it too"
            )
    if len(sources) == 1:
        raise UsageError("none of these changes can be taken back from the top script")
    return sources


def sources_of(chosen: list[Path]) -> Sources:
    """Scripts by their names in the copy of the code; those from outside lie beside baseline.py.

    Raises UsageError if one has the file name of another script: its logs would too; or a name with
    blanks, which the names of logs cannot have.
    """
    ours = scripts.ours()
    of_stem = {path.stem: path for path in ours}
    sources = {}
    for path in chosen:
        if of_stem.setdefault(path.stem, path) != path:
            raise UsageError(f"{path}: another script has this file name too: rename yours")
        if not re.fullmatch(r"[\w.-]+\.py", path.name):
            raise UsageError(f"{path}: a script's name has letters, digits, _, - and . alone")
        name = scripts.relative_name(path) if path in ours else path.name
        sources[name] = path.read_bytes()
    return sources


# ------------------------------------------------------------------ what is done


def go_on(climb: Climb):
    """Do what is left of a climb.

    Ctrl-C or a signal, a full disk and a closed standard output stop it. They are raised again
    after a line that says what is kept. Raises UsageError if another process climbs there.
    """
    room = tempfile.TemporaryDirectory(prefix="ladder-climb-", ignore_cleanup_errors=True)
    with lock(climb.folder), room as scratch:
        try:
            rounds.climb_rounds(climb, Path(scratch), print_table)
        except (KeyboardInterrupt, OSError, UsageError):
            with suppress(OSError):  # of a terminal that was closed
                kept = sum(map(len, climb.kept().values()))
                how = f"ladder climb --resume {quote(str(climb.folder))}"
                # On a line of its own: that of the run under way has not ended.
                print(f"\nstopped; runs kept: {kept}. Go on: {how}", file=sys.stderr)
            raise


def report(folder: Path) -> int:
    """Print what a climb found. Returns 1 if a run failed, else 0."""
    results = print_table(folder)
    console = screen()
    if results.ran:
        log = results.log
        console.say(tables.caption(results))
        console.say(
            f"Rounds: {results.rounds_begun} of {results.climb.rounds}. Steps of each run: "
            f"{log.warmup_steps} of warm-up, {len(log.step_times)} measured. In brackets: the "
            "gain's 95 % interval, from three rounds on. docs/measuring.md says what columns mean."
        )
    for line in tables.footnotes(results):
        console.say(line)
    # Not wrapped: they are to be copied.
    say(f"Logs, climb.json, what ran: {folder}")
    if results.ran:
        say(f"As a page: ladder report {quote(str(folder))} --open")
    reasons = {why for row in results.rows for why in row.failures.values()}
    failed = reasons - {OUT_OF_MEMORY}
    return 1 if failed or not results.ran else 0


def print_table(folder: Path) -> Results:
    """Print the table of the runs so far."""
    results = read_climb(folder)
    console = screen()
    console.print(tables.for_terminal(results, console))
    return results
