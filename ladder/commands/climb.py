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
    ladder climb --resume runs/climb-… go on with a climb that was stopped

Every run is a process of its own. The order is 0, 1, …, top, then top, …, 0,
and so on: a machine that slows down slows neighbours alike. A quick climb runs
the top after rung 0. Round k trains from seed + k - 1. A gain is the
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

import sys
import tempfile
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from rich.console import Console

from ladder import cli
from ladder.errors import UsageError
from ladder.files import lock
from ladder.measure import rounds, scripts
from ladder.measure.folder import OUT_OF_MEMORY, Climb, climb_logs
from ladder.measure.rows import Row, read_climb, rounds_begun
from ladder.measure.scripts import A_RUNG, RUNGS, select
from ladder.measure.without import without
from ladder.show import tables
from ladder.show.console import screen


def add_arguments(parser):
    add = parser.add_argument
    add("rungs", nargs="*", help=RUNGS)
    # None, not False: --resume refuses whatever was given beside it.
    quick = "a first look in five minutes: rungs 0 to 5, 10 and the last, few steps"
    add("--quick", action="store_true", default=None, help=quick)
    one_out = f"the top rung, and it without each of these (or of all): {A_RUNG}"
    add("--without", nargs="*", metavar="RUNG", help=one_out)
    sizes = "run each rung at each of these B"
    add("--batch-sizes", nargs="+", type=cli.positive, metavar="B", help=sizes)
    stopped = "go on with this climb that was stopped, and run again what failed"
    add("--resume", type=cli.path, metavar="FOLDER", help=stopped)
    add("--rounds", type=cli.positive, help="how often each rung runs (default: 3)")
    minutes = "begin no run after this time"
    add("--max-minutes", type=cli.positive, metavar="MINUTES", help=minutes)
    add("--out", type=cli.path, help="new folder for code, logs and results (default: runs/…)")
    cli.add_flags(parser.add_argument_group("flags of every script"), *rounds.PASSED_ON)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.resume:
        return resume(args)
    device_type = cli.pick_device(args.device).type
    rungs = scripts.rungs_for(device_type)
    if args.without is not None:
        return climb_without(args, rungs)
    if args.quick:
        steps, in_rounds = (12, 3) if device_type == "cuda" else (4, 1)
        args.steps = args.steps or steps
        args.rounds = args.rounds or in_rounds
        args.max_minutes = args.max_minutes or 5
        rungs = [*rungs[:6], rungs[10], rungs[-1]]
    chosen = select(args.rungs) or rungs
    of_transformers = scripts.transformers_scripts()
    if set(chosen) & set(of_transformers) and find_spec("transformers") is None:
        raise UsageError("transformers is not installed: pip install -e '.[transformers]'")
    if args.batch_sizes and args.batch_size:
        raise UsageError("give --batch-size or --batch-sizes, not both")
    kind = "climb"
    if args.batch_sizes:
        kind = "batch-sizes"
    elif chosen[0] in of_transformers:
        kind = "transformers"
    return begin_and_run(args, kind, chosen)


def resume(args) -> int:
    """Go on with a climb. Returns the exit status."""
    for name, value in vars(args).items():
        if name != "resume" and value not in (None, []):
            raise UsageError("--resume does what the climb was asked for: give nothing else")
    folder = Path(args.resume)
    Climb.read_from(folder)  # raises UsageError if there is none
    if not (folder / "code").is_dir():  # a published one
        raise UsageError(f"{folder} is no climb to go on with: it has no code/")
    return run_and_report(folder)


def climb_without(args, rungs: list[Path]) -> int:
    """Climb the top rung, and it without single rungs. Returns the exit status."""
    if len(args.rungs) > 1:
        raise UsageError("name one top rung before --without, and what to leave out after it")
    if args.quick or args.batch_sizes:
        raise UsageError("--without goes with neither --quick nor --batch-sizes")
    if args.rungs:
        rungs = select([f"0-{args.rungs[0]}"])
    top = rungs[-1]
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        for rung in select(args.without) or rungs[1:]:
            source = rung in rungs[1:] and without(scripts.base_of(rung), rung, top)
            if not source:
                why = f"it is not below {top.stem}, or a later rung changed it too"
                print(f"{rung.stem} cannot be left out: {why}")
                continue
            path = Path(scratch, f"without_{rung.name}")
            path.write_text(source, encoding="utf-8")
            made.append(path)
        if not made:
            raise UsageError("none of these changes can be taken back from the top script")
        return begin_and_run(args, "without", [top, *made])


def begin_and_run(args, kind: str, chosen: list[Path]) -> int:
    """Climb these scripts. Returns the exit status."""
    return run_and_report(rounds.begin(args, kind, chosen))


def run_and_report(folder: Path) -> int:
    """Do what is left of a climb and print its table. Returns 1 if a run failed, else 0.

    Ctrl-C or a signal, a full disk and a closed standard output stop it. They are raised again
    after a line that says what is kept. Raises UsageError if another process climbs there.
    """
    tables.titles()  # reads the scripts now: the checkout may change during the climb
    console = screen()
    room = tempfile.TemporaryDirectory(prefix="ladder-climb-", ignore_cleanup_errors=True)
    with closing(lock(folder)), room as scratch:
        try:
            show_table = partial(print_table, folder, console)
            rounds.run_rounds(folder, Path(scratch), console, show_table)
        except (KeyboardInterrupt, OSError, UsageError):
            with suppress(OSError):  # of a terminal that was closed
                console.now("")
                ended = len(climb_logs(folder, Climb.read_from(folder)))
                go_on = f"ladder climb --resume {quote(str(folder))}"
                print(f"stopped; runs kept: {ended}. Go on: {go_on}", file=sys.stderr)
            raise
    climb, rows = print_table(folder, console)
    good = [row for row in rows if row.logs]
    if good:
        log = good[0].log
        console.say(tables.caption(climb, rows))
        console.say(
            f"Rounds: {rounds_begun(rows)} of {climb.rounds}. Steps of each run: "
            f"{log.warmup_steps} of warm-up, {log.measured_steps} measured. In brackets: the "
            "gain's 95 % interval, from three rounds on. docs/measuring.md says what columns mean."
        )
    for line in tables.footnotes(climb, rows):
        console.say(line)
    # Not wrapped: they are to be copied.
    console.print(f"Logs, climb.json, what ran: {folder}", soft_wrap=True)
    if good:
        console.print(f"As a page: ladder report {quote(str(folder))} --open", soft_wrap=True)
    failed = {why for row in rows for why in row.failures.values()} - {OUT_OF_MEMORY}
    return 1 if failed or not good else 0


def print_table(folder: Path, console: Console) -> tuple[Climb, list[Row]]:
    """Print the table of the runs so far; returns the climb and the rows."""
    climb, rows = read_climb(folder)
    console.print(tables.for_terminal(climb, rows, console))
    return climb, rows
