"""Run rungs one after the other, several times over, and say what each one gains on this machine.

    ladder climb                              all rungs, three times: an hour on a small CPU
    ladder climb --quick                      what do I get here? A few rungs in five minutes
    ladder climb 0 3 5-7 --repeats 5          some of them; a path to a script is welcome too
    ladder climb --repeats 20 --at-most 240   as many rounds as end in four hours
    ladder climb --resume                     go on with the last climb that was stopped

Every run is a process of its own. The order is 0, 1, …, top, then top, …, 1, 0, and so on: a
machine that slows down slows neighbours alike. A gain is the mean of the log ratios between
neighbours in the same round, with its 95 % interval. All runs start from a copy of the code in the
climb's folder: edit, or switch branches, meanwhile. Nothing that git tracks is changed.
"""

import json
import math
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import closing, suppress
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from rich.console import Console

from ladder import cli, machine
from ladder.commands.share import pack
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import ROOT, RUNNING_CODE, SCRIPTS, commit, lock, write_atomic
from ladder.measure import process, scripts
from ladder.measure import rows as results
from ladder.measure.kinds import kind_of
from ladder.measure.parser import read_log
from ladder.measure.rows import OUT_OF_MEMORY, read_climb, read_climb_json, runs_of
from ladder.show import tables
from ladder.show.screen import wide_console
from ladder.text import show

PASSED_ON = [name for name in cli.FLAGS if name != "log_dir"]  # to every script


def add_arguments(parser):
    add = parser.add_argument
    add("rungs", nargs="*", help=scripts.RUNGS)
    # None, not False: --resume refuses whatever was given beside it.
    quick = "a first look in five minutes: rungs 0 to 5, 10 and the top, few steps"
    add("--quick", action="store_true", default=None, help=quick)
    last = "go on with it, and run again what failed (default: the last)"
    add("--resume", nargs="?", const="", metavar="DIR", help=last)
    add_run_arguments(parser)


def add_run_arguments(parser):
    """What every subcommand that runs scripts in rounds takes."""
    add = parser.add_argument
    add("--repeats", type=cli.positive, help="rounds (default: 3)")
    minutes = "begin no round, but the first, that would not end in this time (default: no limit)"
    add("--at-most", type=cli.above_zero, metavar="MINUTES", help=minutes)
    add("--out", help="new folder for code, logs and results (default: runs/…)")
    cli.add_flags(parser.add_argument_group("flags of every script"), *PASSED_ON)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.resume is not None:
        given = {name for name, value in vars(args).items() if value not in (None, [])}
        if more := ", ".join(sorted(given - {"resume"})).replace("_", "-"):
            raise BadInput(f"--resume does what the climb was asked for: give no {more} with it")
        return run_and_report(find_stopped(args.resume))
    chosen, device = scripts.select(args.rungs), cli.pick_device(args.device)
    if args.quick:
        args.steps = args.steps or (12 if device.type == "cuda" else 4)
        args.at_most = args.at_most or 5  # minutes
        args.repeats = args.repeats or (3 if device.type == "cuda" else 1)
    chosen = chosen or rungs_for(device, args.quick)
    return run_and_report(new_folder(args, "climb", chosen))


def rungs_for(device, quick: bool | None) -> list[Path]:
    """The rungs that are climbed where none is named: without those for another device."""
    rungs = scripts.all_scripts()
    if device.type != "cpu" and (without := [path for path in rungs if scripts.cpu_only(path)]):
        names = " and ".join(path.stem for path in without)
        print(f"note  {names} change nothing on a GPU and are left out: name rungs to run them")
        rungs = [path for path in rungs if path not in without]
    return [*rungs[:6], rungs[10], rungs[-1]] if quick else rungs


def new_folder(args, kind: str, chosen: list[Path], sizes: list[int] = ()) -> Path:
    """Make the folder of a climb, climb.json and a copy of the code, after timing a large matmul.

    With `sizes` each script runs at each of these B. Raises BadInput and leaves no folder where
    something is wrong with what was asked for.
    """
    chosen = [*dict.fromkeys(chosen)]  # one named twice counts once
    ours = {*scripts.chain(), *scripts.peer_scripts(), *(ROOT / name for name in SCRIPTS)}
    stems = [path.stem for path in {*ours, *chosen}]
    own = [path for path in chosen if path not in ours]
    if same := [path for path in own if stems.count(path.stem) > 1]:
        raise BadInput(f"{same[0]}: another script has this file name too: rename yours")
    if args.out and Path(args.out).exists():  # before half a minute is spent
        raise BadInput(f"{args.out} is there already: choose another --out, or --resume that")
    from ladder.batches import Batches  # it imports torch, which --help need not

    # A wrong device, T or corpus is told once and now: every run would fail for it.
    largest = [f"--batch-size={max(sizes)}"] if sizes else []
    asked = cli.parse_args(__doc__, process.given_flags(args, *PASSED_ON) + largest)
    Batches(load_corpus(args.data, show), asked.batch_size, asked.seq_len)
    load = round(process.load(), 1)
    print("timing a large matmul, as before each round: up to half a minute")
    found = large_matmul(process.given_flags(args, "device"))
    folder = process.make_folder(args.out, kind)
    names = filter(find_spec, ("torch", "numpy", "tiktoken", "transformers"))
    ran = [path.name if path in own else path.relative_to(ROOT).as_posix() for path in chosen]
    runs = [[f"{Path(name).stem}_B{B}", name, f"--batch-size={B}"] for B in sizes for name in ran]
    climb = {
        "kind": kind,
        "started": f"{datetime.now():%Y-%m-%d %H:%M}",
        "commit": commit(),
        "repeats": args.repeats or 3,
        "at_most": args.at_most,
        "minutes": 0,
        "quick": bool(getattr(args, "quick", False)),
        "flags": process.given_flags(args, *(name for name in PASSED_ON if name != "data")),
        "data": args.data and str(Path(args.data).resolve()),
        "versions": {"python": platform.python_version()} | {n: version(n) for n in names},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": load,
        "clocks": {"before": found.pop("clocks")},
        "peaks": [found["peak_flops"]],  # of the rounds; peak_flops is their median
        "failures": {},
        "scripts": ran,
        **({"runs": runs} if runs else {}),
        **found,
    }
    copy_code(folder / "code", own, climb["commit"])
    save(folder, climb)
    print(*(f"note  {line}\n" for line in tables.doubts(climb)), sep="", end="")
    return folder


def copy_code(code: Path, own: list[Path], commit: str) -> None:
    """Copy what a climb starts and imports, its own scripts beside baseline.py."""
    patterns = (words.removeprefix(":(glob)") for words in (*RUNNING_CODE, "ladder/measure/*.py"))
    used = (path for pattern in patterns for path in ROOT.glob(pattern))
    for path, name in [*((p, p.relative_to(ROOT)) for p in used), *((p, p.name) for p in own)]:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, code / name)
    (code / "COMMIT").write_text(commit + "\n")


def large_matmul(flags: list[str], package: Path = ROOT) -> dict:
    """What gemm.py measures on the device that these flags name. Raises BadInput."""
    device = [flag for flag in flags if flag.startswith("--device=")]
    return process.run_python("-m", "ladder.measure.gemm", *device, package=package).answer()


def save(folder: Path, climb: dict):
    write_atomic(folder / "climb.json", json.dumps(climb, indent=1).encode() + b"\n")


def find_stopped(name: str) -> Path:
    """The climb of this name, or if it is empty the last one under runs/ with runs left to do.

    Raises BadInput if there is none, or it began with another PyTorch or on another device.
    """
    if not name:
        found = sorted(Path("runs").glob("*/climb.json"), key=lambda path: path.stat().st_mtime)
        left = [path.parent for path in found if has_runs_left(read_climb_json(path.parent))]
        if not left:
            raise BadInput("no climb under runs/ was stopped, or had a run that failed: name one")
        name = left[-1]
    climb = read_climb_json(folder := Path(name))
    if not (folder / "code").is_dir():  # a published one
        raise BadInput(f"{folder} is no climb to go on with: it has no code/")
    now = machine.device_name(cli.parse_args("", climb["flags"]).device), version("torch")
    if (then := (climb["device"], climb["versions"]["torch"])) != now:
        began, here = map(", torch ".join, (then, now))
        raise BadInput(f"{folder} began on {began}, this is {here}: start anew")
    return folder


def has_runs_left(climb: dict) -> bool:
    """Whether a climb was stopped, or a run of it failed (out of memory is a result)."""
    failed = any(why != OUT_OF_MEMORY for why in climb["failures"].values())
    return failed or "after" not in climb["clocks"]


def run_and_report(folder: Path) -> int:
    """Do what is left of a climb and print its table; 1 if no run came to its end.

    What stops it goes on upwards, after a line that says what is kept: Ctrl-C or a signal, a full
    disk, a closed standard output. Raises BadInput if another process climbs there.
    """
    from ladder.measure.gemm import clocks  # all now: in an hour the files may be others
    from ladder.show.picture import draw

    tables.titles()
    console = wide_console()
    room = tempfile.TemporaryDirectory(prefix="ladder-climb-", ignore_cleanup_errors=True)
    with closing(lock(folder)), room as scratch:
        try:
            climb = run_rounds(folder, Path(scratch), console)
            if "after" not in climb["clocks"]:  # else it had ended already
                climb["clocks"]["after"] = clocks(cli.parse_args("", climb["flags"]).device)
                save(folder, climb)
        except (KeyboardInterrupt, OSError, BadInput):
            ended = len(list(folder.glob("*.r*.log")))
            with suppress(OSError):  # of a terminal that was closed
                go_on = f"ladder climb --resume {quote(str(folder))}"
                print(f"stopped; {ended} runs are kept. Go on: {go_on}", file=sys.stderr)
            raise
    return report(folder, console, draw)


def run_rounds(folder: Path, scratch: Path, console: Console) -> dict:
    """Run, round by round, what climb.json asks for and is not done yet; returns what it says then.

    A run is announced as it begins. While it is under way this process sleeps. What it compiles is
    kept in `scratch` for the next rounds.
    """
    climb, started = read_climb_json(folder), time.monotonic()
    failures = climb["failures"].items()  # what failed is due again, but where that is a result
    climb["failures"] = {name: why for name, why in failures if why == OUT_OF_MEMORY}
    earlier, k, ended = climb["minutes"], 0, {path.stem for path in folder.glob("*.r*.log")}
    begun = max((int(name.rpartition(".r")[2]) for name in ended), default=1)
    if ended:
        kept = f"going on with {folder}: {len(ended)} runs are kept"
        console.print(f"{kept}; its code/ runs, without your edits since", soft_wrap=True)
    while k < begun or another_round(climb, k):
        k += 1
        runs = [run for run in runs_of(climb) if fits(climb, run)]
        due = [run for run in runs if f"{run[0]}.r{k}" not in ended]
        if due and len(climb["peaks"]) < k:
            console.print(f"round {k}: timing a large matmul")
            add_peak(folder, climb, k)
            console.print(f"round {k}: it runs at {climb['peaks'][-1] / 1e12:.3g} TFLOP/s")
        if len(due) == len(runs) and k > 1:  # not as a stopped round goes on
            console.print(tables.screen(climb, read_climb(folder)[1], console))
        for run in due if k % 2 else due[::-1]:  # what a run leaves to the next cancels
            if not fits(climb, run):
                continue
            now = f"{run[0]}, round {k} of {climb['repeats']}"
            console.print(f"{now}, running since {datetime.now():%H:%M}", soft_wrap=True)
            try:
                news = f"{run_once(folder, climb, run, k, scratch):.0f} tok/s"
            except BadInput as error:
                news, why = f"failed: {error}", str(error)
                if kind_of(climb).varied and re.search("^out of memory|memory is full$", why):
                    news, why = why.partition(":")[0], OUT_OF_MEMORY
                climb["failures"][f"{run[0]}.r{k}"] = why
            ended.add(f"{run[0]}.r{k}")
            climb["minutes"] = earlier + (time.monotonic() - started) / 60
            save(folder, climb)
            rounds, runs = range(1, climb["repeats"] + 1), [r for r in runs if fits(climb, r)]
            total = len(ended.union(f"{name}.r{n}" for n in rounds for name, *_ in runs))
            left = f"about {climb['minutes'] / len(ended) * (total - len(ended)):.0f} min left"
            console.print(f"{now}: {news} ({len(ended)} of {total} runs, {left})", soft_wrap=True)
    return climb | {"repeats": k}


def fits(climb: dict, run: list[str]) -> bool:
    """Whether memory may hold a run: it held all that were tried of its script at B up to this."""
    up_to = [name for name, script, *_ in runs_of(climb) if script == run[1]]
    del up_to[up_to.index(run[0]) + 1 :]
    full = (name for name, why in climb["failures"].items() if why == OUT_OF_MEMORY)
    return not any(name.rpartition(".")[0] in up_to for name in full)


def add_peak(folder: Path, climb: dict, k: int) -> None:
    """Time the large matmul again, as round k begins."""
    found = large_matmul(climb["flags"], folder / "code")
    climb["peaks"].append(found["peak_flops"])
    climb["peak_flops"] = statistics.median(climb["peaks"])
    if found["clocks"].startswith("clocks"):  # a GPU's
        climb["clocks"][f"round {k}"] = found["clocks"]


def another_round(climb: dict, done: int) -> bool:
    """Whether one more round follows these `done` ones: none that would not end in time, if it
    takes as long as the others did."""
    limit = climb["at_most"] or math.inf
    return done < climb["repeats"] and climb["minutes"] * (done + 1) / done <= limit


def run_once(folder: Path, climb: dict, run: list[str], k: int, scratch: Path) -> float:
    """One run in a process of its own, whose log becomes NAME.rK.log. Returns its tok/s.

    Raises BadInput, saying why, if it failed; then NAME.rK.failed has what it wrote to stderr.
    """
    name, script, *flags = run
    code, log_dir = (folder / "code").resolve(), scratch / f"{name}.r{k}"
    flags = [*climb["flags"], *(["--data", climb["data"]] if climb["data"] else []), *flags]
    if "from ladder.ranks import" in (code / script).read_text("utf-8", "replace"):  # ddp_run.py
        flags.append("--ckpt-every=0")
    log_path, failed = (folder / f"{name}.r{k}.{suffix}" for suffix in ("log", "failed"))
    failed.unlink(missing_ok=True)
    log_dir.mkdir(parents=True)
    words = (code / script, *flags, "--log-dir", log_dir)
    env = {"TORCHINDUCTOR_CACHE_DIR": str(scratch / name)}
    done = process.run_python(*words, package=code, folder=log_dir, **env)
    try:
        if done.failure or not (logs := list(log_dir.glob("*.log"))):
            raise BadInput(done.failure or "it wrote no log to --log-dir")
        log = read_log(logs[0])
        if log.result["status"] != "ok":
            raise BadInput(f"its run ended {log.result['status']}")
        others = [read_log(path) for path in sorted(folder.glob("*.r*.log"))[:1]]
        results.check_comparable("this climb", [log, *others], climb)
    except BadInput as error:
        write_atomic(failed, done.stderr.encode())
        raise BadInput(str(error).replace(f"{log_dir}{os.sep}", "")) from None
    write_atomic(log_path, logs[0].read_bytes())
    return log.result["tok_per_s"]


def report(folder: Path, console: Console, draw) -> int:
    """Print the table of a climb and draw its picture; 1 if not one run came to its end."""
    climb, rows = read_climb(folder)
    console.print(tables.screen(climb, rows, console))
    for row in (row for row in rows if row.failure not in (None, OUT_OF_MEMORY)):
        console.print(f"{row.stem} failed: {row.failure}", soft_wrap=True)
    good = [row for row in rows if not row.failure]
    if good:
        result = good[0].log.result
        console.print(tables.caption(climb, rows))
        console.print(
            f"Rounds: {climb['repeats']}. Steps of each run: {result['warmup_steps']} of warm-up, "
            f"{result['measured_steps']} measured. In brackets: the gain's 95 % interval."
        )
        notes = [f"note  {line}" for line in tables.doubts(climb | {"load": 0})]  # that was told
        for line in [*tables.foot(climb, rows), *notes]:
            console.print(line)
        draw(climb, rows, folder / "climb.png")
    console.print(f"Logs, climb.json, what ran: {folder}", soft_wrap=True)
    with suppress(BadInput):  # it takes the 124M model on the usual text, committed, not quick
        pack(folder)
        console.print(f"share it: ladder share {quote(str(folder))}", soft_wrap=True)
    return 0 if good else 1
