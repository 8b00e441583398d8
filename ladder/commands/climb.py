"""Run rungs one after the other, several times over, and say what each one gains on this machine.

    ladder climb                              all rungs, three times
    ladder climb --quick                      what do I get here? A few rungs in five minutes
    ladder climb 0 3 5-7 --repeats 5          some of them; a path to a script is welcome too
    ladder climb --repeats 20 --at-most 240   as many rounds as end in four hours
    ladder climb --resume runs/climb-…        go on with a climb that was stopped

Every run is a process of its own. The order is 0, 1, …, top, then top, …, 1, 0, and so on: a
machine that slows down slows neighbours alike. A quick climb runs the top after rung 0. A gain is
the mean of the log ratios between neighbours in the same round, with its 95 % interval. All runs
start from a copy of the code in the climb's folder: edit, or switch branches, meanwhile. Nothing
that git tracks is changed.
"""

import math
import sys
import tempfile
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from shlex import quote

from rich.console import Console

from ladder import cli
from ladder.commands.diff import RUNGS, select
from ladder.commands.share import pack
from ladder.errors import BadInput
from ladder.files import lock
from ladder.machine import clocks
from ladder.measure import rounds, scripts
from ladder.measure.rows import (
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    Row,
    first_log,
    has_ended,
    read_climb,
    read_climb_json,
    runs_of,
)
from ladder.show import tables
from ladder.show.screen import wide_console


def add_arguments(parser):
    add = parser.add_argument
    add("rungs", nargs="*", help=RUNGS)
    # None, not False: --resume refuses whatever was given beside it.
    quick = "a first look in five minutes: rungs 0 to 5, 10 and the last, few steps"
    add("--quick", action="store_true", default=None, help=quick)
    stopped = "go on with this climb that was stopped, and run again what failed"
    add("--resume", type=Path, metavar="FOLDER", help=stopped)
    add_run_arguments(parser)


def add_run_arguments(parser):
    """What every subcommand that runs scripts in rounds takes."""
    add = parser.add_argument
    add("--repeats", type=cli.positive, help="rounds (default: 3)")
    minutes = "begin no round that would not end in this time, and stop when it is over"
    add("--at-most", type=float, metavar="MINUTES", help=minutes)
    add("--out", help="new folder for code, logs and results (default: runs/…)")
    cli.add_flags(parser.add_argument_group("flags of every script"), *rounds.PASSED_ON)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.resume:
        given = {name for name, value in vars(args).items() if value not in (None, [])}
        more = ", ".join(sorted(given - {"resume"})).replace("_", "-")
        if more:
            raise BadInput(f"--resume does what the climb was asked for: give no {more} with it")
        read_climb_json(args.resume)  # raises BadInput if there is none
        if not (args.resume / "code").is_dir():  # a published one
            raise BadInput(f"{args.resume} is no climb to go on with: it has no code/")
        return run_and_report(args.resume)
    chosen = select(args.rungs)
    device = cli.pick_device(args.device)
    if args.quick:
        steps, repeats = (12, 3) if device.type == "cuda" else (4, 1)
        args.steps = args.steps or steps
        args.repeats = args.repeats or repeats
        args.at_most = args.at_most or 5  # minutes
    return prepare_and_run(args, "climb", chosen or rungs_for(device, args.quick))


def rungs_for(device, quick: bool | None) -> list[Path]:
    """The rungs that are climbed where none is named: without those for another device."""
    rungs = scripts.all_scripts()
    without = [path for path in rungs if scripts.cpu_only(path)]
    if device.type != "cpu" and without:
        names = " and ".join(path.stem for path in without)
        print(f"note  {names} change nothing on a GPU and are left out: name rungs to run them")
        rungs = [path for path in rungs if path not in without]
    return [*rungs[:6], rungs[10], rungs[-1]] if quick else rungs


def rungs_to_top(device) -> list[Path]:
    """The rungs from the baseline to the top one for this device, each going on from the last."""
    on_cpu = device.type == "cpu"
    rungs = [path for path in scripts.all_scripts() if scripts.cpu_only(path) == on_cpu][-1:]
    while start := scripts.before(rungs[0]):
        rungs.insert(0, start)
    return rungs


def prepare_and_run(args, kind: str, chosen: list[Path], sizes: list[int] = ()) -> int:
    """Climb these scripts, each at every B of `sizes`. Returns the exit status."""
    folder = rounds.prepare(args, kind, chosen, sizes)
    for line in tables.doubts(read_climb_json(folder)):
        print(f"note  {line}")
    return run_and_report(folder)


def run_and_report(folder: Path) -> int:
    """Do what is left of a climb and print its table; 1 if no run ended well.

    Ctrl-C or a signal, a full disk and a closed standard output stop it. They are raised again
    after a line that says what is kept. Raises BadInput if another process climbs there.
    """
    tables.titles()
    console = wide_console()
    say = partial(console.print, soft_wrap=True)
    room = tempfile.TemporaryDirectory(prefix="ladder-climb-", ignore_cleanup_errors=True)
    with closing(lock(folder)), room as scratch:
        try:
            show_table = partial(print_table, folder, console)
            forecast = partial(runs_left, folder)
            climb = rounds.run_rounds(folder, Path(scratch), say, forecast, show_table)
            if not has_ended(climb):  # a resumed one may have
                climb["clocks"]["after"] = clocks(cli.parse_args("", climb["flags"]).device)
                rounds.save(folder, climb)
        except (KeyboardInterrupt, OSError, BadInput):
            ended = len(list(folder.glob("*.r*.log")))
            with suppress(OSError):  # of a terminal that was closed
                go_on = f"ladder climb --resume {quote(str(folder))}"
                print(f"stopped; {ended} runs are kept. Go on: {go_on}", file=sys.stderr)
            raise
    climb, rows = print_table(folder, console)
    good = any(row.logs for row in rows)
    report(climb, rows, say)
    say(f"Logs, climb.json, what ran: {folder}")
    if good:
        say(f"As a page: ladder report {quote(str(folder))} --open")
    with suppress(BadInput):  # it takes the 124M model on the usual text, committed, not quick
        pack(folder)
        say(f"share it: ladder share {quote(str(folder))}")
    return 0 if good else 1


def runs_left(folder: Path, climb: dict) -> str:
    """`3 of 26 runs, about 12 min left`: as many as the runs so far took, once a round is done."""
    done = len(list(folder.glob("*.r*.log"))) + len(climb["failures"])
    left = 0
    for k in range(1, climb["repeats"] + 1):
        left += len(rounds.runs_due(folder, climb, k))
    text = f"{done} of {done + left} runs"
    if left == 0 or done < len(runs_of(climb)):
        return text
    minutes = left * climb["minutes"] / done
    minutes = min(minutes, rounds.seconds_left(climb) / 60)
    return f"{text}, about {math.ceil(minutes)} min left"


def print_table(folder: Path, console: Console) -> tuple[dict, list[Row]]:
    """Print the table of the runs so far; returns climb.json and the rows."""
    climb, rows = read_climb(folder)
    console.print(tables.screen(climb, rows, console))
    return climb, rows


def report(climb: dict, rows: list[Row], say):
    """Say what has to be said below the table of a climb that has ended."""
    for row in rows:
        if row.failure not in (None, OUT_OF_MEMORY, OUT_OF_TIME):
            say(f"{row.stem} failed: {row.failure}")
    late = ", ".join(row.stem for row in rows if row.failure == OUT_OF_TIME)
    if late:
        say(f"The time (--at-most {climb['at_most']:g}) was over before these could run: {late}")
    if all(row.failure for row in rows):
        return
    result = first_log(rows).result
    say(tables.caption(climb, rows))
    say(
        f"Rounds: {climb['repeats']}. Steps of each run: {result['warmup_steps']} of warm-up, "
        f"{result['measured_steps']} measured. In brackets: the gain's 95 % interval, from three "
        "rounds on. docs/measuring.md says what the columns mean."
    )
    for line in tables.foot(climb, rows):
        say(line)
    for line in tables.doubts(climb | {"load": 0}):  # that was told as it began
        say(f"note  {line}")
