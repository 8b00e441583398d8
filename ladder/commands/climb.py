"""Run rungs one after the other, several times over, and say what each one gains on this machine.

    ladder climb                              all rungs, three times: an hour on a small CPU
    ladder climb 0 3 5-7 --repeats 5          some of them; a path to a script is welcome too
    ladder climb --quick                      what do I get here? Five minutes on a GPU
    ladder climb --precision 2 --at-most 240  rounds until each gain is known to ± 2 %, or 4 hours
    ladder climb --fit                        each rung at the largest batch that fits the device
    ladder climb --resume                     go on with the last climb that was stopped

Every run is a process of its own. The order is 0, 1, …, top, then top, …, 1, 0, and so on: a
machine that slows down slows neighbours alike. A gain is the mean of the log ratios between
neighbours in the same round, with its 95 % interval. Nothing that git tracks is changed unless --publish is given.
"""

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import closing, nullcontext, suppress
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress

from ladder import machine
from ladder.cli import (
    FLAGS,
    above_zero,
    add_flags,
    check_seq_len,
    given_flags,
    integer,
    parse_args,
    pick_device,
)
from ladder.commands import process
from ladder.commands.kinds import kind_of
from ladder.commands.log import read_log
from ladder.commands.precompile import precompile
from ladder.commands.publish import check_finding, publish
from ladder.commands.results import (
    LEAST_ROUNDS,
    NOT_YET,
    Row,
    check_comparable,
    not_there,
    read_climb,
    read_facts,
    read_run,
)
from ladder.commands.scripts import (
    RUNGS,
    all_scripts,
    low_precision,
    peer_scripts,
    refuse_namesakes,
    select,
)
from ladder.commands.share import pack
from ladder.commands.tables import caption, doubts, foot, screen, wide_console
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import COMMITTED, ROOT, RUNNING_CODE, commit, lock, sha256, write_whole
from ladder.log import show

SCRATCH = ".running-"  # where a run that is under way writes its log
QUICK_MINUTES = 5
MOST_ROUNDS = 9999  # as the names of logs have room
PASSED_ON = [name for name in FLAGS if name != "log_dir"]  # to every script


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", help=RUNGS)
    # None, not False: --resume refuses whatever was given beside it.
    words = "know 13 and up too; with no numbers, climb the last rung and all exact candidates"
    parser.add_argument("--candidates", action="store_true", default=None, help=words)
    last = dict(nargs="?", const="", metavar="DIR", help="go on with it (default: the last)")
    parser.add_argument("--resume", **last)
    words = "each at its own largest B, which is searched first; a table of its own (default: no)"
    parser.add_argument("--fit", action="store_true", default=None, help=words)
    words = "what --fit fills on a CPU; needed there (default: none)"
    parser.add_argument("--memory", type=above_zero, metavar="GIB", help=words)
    finding = "publish it then, with this sentence (default: do not)"
    parser.add_argument("--publish", metavar="FINDING", help=finding)
    add_run_arguments(parser)


def add_run_arguments(parser):
    """What every subcommand that runs scripts in rounds takes."""
    add = parser.add_argument
    rounds = integer("positive integer", 1, MOST_ROUNDS + 1, f"1 to {MOST_ROUNDS}")
    add("--repeats", type=rounds, help=f"rounds (default: 3; {LEAST_ROUNDS} with --precision)")
    percent = "add rounds until every interval is narrower than ± this (default: add none)"
    add("--precision", type=above_zero, metavar="PERCENT", help=percent)
    minutes = "begin no round, but the first, that would not end in this time (default: no limit)"
    add("--at-most", type=above_zero, metavar="MINUTES", help=minutes)
    true = dict(action="store_true", default=None)
    add("--precompile", **true, help="fill the compile caches first, side by side")
    quick = f"--precompile, few steps, --at-most {QUICK_MINUTES}: a first look, not to be published"
    add("--quick", **true, help=quick)
    add("--out", help="new folder for logs and results (default: runs/…)")
    add_flags(parser.add_argument_group("flags of every script"), *PASSED_ON)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.quick and args.publish:
        raise BadInput("a quick climb is not published: leave out --quick or --publish")
    if args.publish is not None:
        check_finding(args.publish)
        low = any(map(low_precision, select(args.rungs, args.candidates)))
        faults = {
            "only gpt2 (124M) is published: leave out --model": args.model not in (None, "gpt2"),
            "only tinyshakespeare is published: leave out --data": args.data,
            "2 steps are no measurement: leave out --steps": args.steps in (1, 2),
            "low precision is not published: leave out that script": low,
            "only committed code is published: commit": not COMMITTED.fullmatch(commit()),
        }
        if why := next((why for why, wrong in faults.items() if wrong), ""):  # before the hour
            raise BadInput(f"{why}, or leave out --publish")
    if args.resume is not None:
        asked = {**vars(args), "resume": None, "publish": None}
        if given := [name for name, value in asked.items() if value not in (None, [])]:
            names = ", ".join(given).replace("_", "-")
            raise BadInput(f"--resume does what the climb was asked for: give no {names} with it")
        folder = find_stopped(args.resume)
    else:
        if args.fit:
            if args.batch_size or args.quick or args.precompile:
                raise BadInput(
                    "--fit chooses B and compiles: no --batch-size, --quick, --precompile"
                )
            with process.if_slow():
                from ladder.commands.fit import python_within  # it imports torch, --help need not

            python_within(args.memory, pick_device(args.device).type)  # raises BadInput
        elif args.memory:
            raise BadInput("--memory is for --fit")
        kind = "fit" if args.fit else "climb"
        folder = new_folder(args, kind, select(args.rungs, args.candidates))
    status = run_and_report(folder)
    if status == 0 and args.publish:
        publish(folder, args.publish)
    return status


def new_folder(args, kind: str, scripts: list[Path]) -> Path:
    """Make the folder of a climb with its climb.json, after measuring a large matmul's rate.

    Scripts from elsewhere are copied into it, so that they stay beside their logs. Raises BadInput
    and leaves no folder where something is wrong with what was asked for.
    """
    scripts = [*dict.fromkeys(scripts)]  # one named twice counts once
    own = {*all_scripts(), *peer_scripts()}
    foreign = set(scripts) - own
    refuse_namesakes(scripts)
    if odd := [path for path in scripts if path.suffix != ".py" or not path.stem.strip(".")]:
        raise BadInput(f"{odd[0]} has no name that ends in .py: rename it, say to mine.py")
    if long := [path.name for path in scripts if len(os.fsencode(path.stem)) > 240]:
        raise BadInput(f"{long[0]}: a log could not have this name and .r1: rename it")
    if len({path.stem for path in scripts}) < len(scripts):
        raise BadInput("two of these scripts have the same file name: rename one")
    if args.out and Path(args.out).is_dir():  # before half a minute is spent
        other = f"choose another --out, or --resume {quote(args.out)}"
        raise BadInput(f"{args.out} is there already: {other}")
    check_seq_len(args.seq_len)
    if args.quick:
        on_cuda = pick_device(args.device).type == "cuda"
        args.steps = args.steps or (12 if on_cuda else 5)
        args.at_most = args.at_most or QUICK_MINUTES
    if args.data or args.batch_size or args.seq_len:  # told once and now, not by every run
        from ladder.batches import Batches  # it imports torch, which --help need not

        pick_device(args.device)  # raises BadInput, as the batch does
        asked = parse_args(__doc__, given_flags(args, *PASSED_ON))
        B = 1 if kind == "fit" else asked.batch_size
        Batches(load_corpus(args.data, show), B, asked.seq_len)
    load = round(machine.load(), 1)
    print("timing a large matmul, as before each round: up to half a minute")
    found = large_matmul(given_flags(args, "device"))
    folder = process.new_folder(args.out, kind)
    for path in foreign:
        shutil.copy(path, folder / path.name)
    facts = {
        "kind": kind,
        "started": f"{datetime.now():%Y-%m-%d %H:%M}",
        "commit": (now := commit()),
        **({} if COMMITTED.fullmatch(now) else {"code": running_code()}),
        "repeats": max(args.repeats or 3, LEAST_ROUNDS if args.precision else 1),
        "precision": args.precision,
        "at_most": args.at_most,
        "minutes": 0,
        "quick": bool(args.quick),
        "precompile": bool(args.precompile or args.quick),
        "flags": given_flags(args, *(name for name in PASSED_ON if name != "data")),
        "data": args.data and str(Path(args.data).resolve()),
        "versions": versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": load,
        "clocks": {"before": found.pop("clocks")},
        "memory_gib": getattr(args, "memory", None),
        "peaks": [found["peak_flops"]],  # of the rounds; peak_flops is their median
        "failures": {},
        "sha256": own_scripts(folder),
        "scripts": [p.relative_to(ROOT).as_posix() if p in own else p.name for p in scripts],
        **found,
    }
    save(folder, facts)
    print(*(f"note  {line}\n" for line in doubts(facts)), sep="", end="")
    return folder


def own_scripts(folder: Path) -> dict[str, str]:
    """SHA-256 of each script in the folder by its name: those git does not know."""
    return {path.name: sha256([path]) for path in folder.glob("*.py")}


def running_code() -> str:
    """SHA-256 of the scripts and what they import, which no commit stands for."""
    patterns = [pattern.removeprefix(":(glob)") for pattern in RUNNING_CODE]
    return sha256(sorted(path for pattern in patterns for path in ROOT.glob(pattern)))


def large_matmul(flags: list[str], *more: str) -> dict:
    """What gemm.py measures on the device that these flags name. Raises BadInput."""
    device = [flag for flag in flags if flag.startswith("--device=")]
    return process.run_python("-m", "ladder.commands.gemm", *device, *more).answer()


def versions() -> dict[str, str]:
    names = ["torch", "numpy", "tiktoken", *(["transformers"] if find_spec("transformers") else [])]
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def save(folder: Path, facts: dict):
    write_whole(folder / "climb.json", json.dumps(facts, indent=1).encode() + b"\n")


def find_stopped(name: str) -> Path:
    """The climb of this name, or if it is empty the one under runs/ that was stopped last.

    Raises BadInput if there is none, or it began under other conditions than those of now.
    """
    if not name:
        found = [p for kind in ("climb", "fit") for p in Path("runs").glob(f"{kind}-*/climb.json")]
        found.sort(key=lambda path: -path.stat().st_mtime)
        stopped = (p.parent for p in found if "after" not in read_facts(p.parent)["clocks"])
        if not (name := next(stopped, None)):
            why = "there is no climb under runs/ that was stopped"
            raise BadInput(f"{why}: name a folder, or start one without --resume")
    if not ((folder := Path(name)) / "climb.json").is_file():
        raise BadInput(f"{folder} is no climb: it has no climb.json")
    facts = read_facts(folder)
    if odd := [name for name in facts["scripts"] if not Path(name).stem.strip(".")]:
        # Its compile cache, which a climb empties, would be a folder above.
        raise BadInput(f"{folder}: climb.json names the script {odd[0]}, which is none: remove it")
    device = machine.device_name(device_of(facts))
    for key, now in (("commit", commit()), ("versions", versions()), ("device", device)):
        if facts[key] != now:
            cpu, _, threads = str(facts[key]).rpartition(" (")
            same_cpu = cpu and str(now).startswith(f"{cpu} (")
            to_do = f"set OMP_NUM_THREADS={threads.split()[0]}" if same_cpu else "start anew"
            raise BadInput(f"{folder} began with {key} {facts[key]}, now it is {now}: {to_do}")
    return folder


def device_of(facts: dict):
    """The torch.device that a climb's flags name. Raises BadInput if it is not there."""
    names = [f.removeprefix("--device=") for f in facts["flags"] if f.startswith("--device=")]
    with process.if_slow():
        return pick_device(names[0] if names else None)


def run_and_report(folder: Path) -> int:
    """Do what is left of a climb and print its table; 130 if Ctrl-C or a signal stopped it.

    Raises BadInput if another process climbs there, the code has changed, or the folder is deleted
    or its disk full; OSError if standard output is closed or full.
    """
    console = wide_console()
    with closing(lock(folder)):
        try:
            run_rounds(folder, console)
        except (KeyboardInterrupt, BadInput, OSError) as error:
            try:
                if isinstance(error, KeyboardInterrupt):
                    console.print(f"stopped; {kept(folder)}", soft_wrap=True)
                    return 130
                print(end="", flush=True)
            except OSError:  # of standard output: `program` says it
                print(f"stopped; {kept(folder)}", file=sys.stderr)
                raise
            why = error
            if isinstance(error, OSError):
                why = f"{error.filename or folder}: {error.strerror}"
            raise BadInput(f"stopped: {why}; {kept(folder)}") from error
    return report(folder, console)


def kept(folder: Path) -> str:
    """What is there of a climb that stops, and how to go on."""
    done = len(list(folder.glob("*.r*.log")))
    return f"{done} runs are kept. Go on: ladder climb --resume {quote(str(folder))}"


def run_rounds(folder: Path, console: Console) -> None:
    """Run, round by round, what climb.json asks for and is not done yet.

    Each run gets a line as it ends, on a terminal a row of a table. While it is under way this
    process sleeps.
    """
    facts = read_facts(folder)
    scripts = [folder / n if (folder / n).exists() else ROOT / n for n in facts["scripts"]]
    flags = facts["flags"] + (["--data", facts["data"]] if facts.get("data") else [])
    # What was killed, or ran on another device or text, did not fail by itself: it is due again.
    old, again = facts["failures"].items(), ("killed by", "this climb: its logs differ")
    facts["failures"] = {name: why for name, why in old if not why.startswith(again)}
    ended = facts["failures"].keys() | {path.stem for path in folder.glob("*.r*.log")}
    check_logs(folder, facts)
    for left_over in folder.glob(f"{SCRATCH}*"):  # by kill -9
        shutil.rmtree(left_over)
    if facts["kind"] == "fit":
        from ladder.commands.fit import batches_of

        old = facts.get("batches", {}).items()
        facts["batches"] = known = {k: B for k, B in old if not str(B).startswith(again)}
        if due := [path for path in scripts if path.stem not in known]:
            for stem, B in batches_of(facts, due, flags, folder / "tries"):
                known[stem] = B
                save(folder, facts)
        # Here: a search that was stopped at its very end is not begun again.
        shutil.rmtree(folder / "tries", ignore_errors=True)
    started = time.monotonic()
    if facts.get("precompile") and not ended:
        console.print("compiling first, side by side: minutes for each script on a CPU")
        news = precompile(scripts, flags, process.compile_cache(folder), facts)
        facts["minutes"] = (time.monotonic() - started) / 60
        console.print(news)
    begun = max((int(name.rpartition(".r")[2]) for name in ended), default=1)
    before, started, k = len(ended), time.monotonic(), 0
    bar = Progress(speed_estimate_period=3600)
    task = bar.add_task("", completed=before)
    # Drawn as a run begins and as it ends. No thread works beside it.
    live = Live(bar, console=console, auto_refresh=False, transient=True)
    draws = console.is_terminal and not console.is_dumb_terminal
    with live if draws else nullcontext():
        while k < begun or another_round(folder, facts, k):
            k += 1
            facts["repeats"] = max(facts["repeats"], k)
            total = facts["repeats"] * len(scripts)
            order = scripts if k % 2 else scripts[::-1]  # what a run leaves to the next cancels
            due = [(p, f"{p.stem}.r{k}") for p in order if f"{p.stem}.r{k}" not in ended]
            if due and 0 < len(facts.get("peaks") or []) < k:
                console.print(peak_of_round(folder, facts, k), soft_wrap=True)
            if len(due) == len(scripts) and k > 2:  # not as a stopped round goes on
                for line in precision_reached(facts, read_climb(folder)[1]):
                    console.print(line, soft_wrap=True)
            for path, name in due:
                bar.update(task, description=name, total=total)
                live.refresh()
                news = run_next(folder, facts, path, name, flags)
                bar.advance(task)
                ended.add(name)
                n = len(ended)
                minutes = (time.monotonic() - started) / (n - before) * (total - n) / 60
                left = f"{n} of {total} runs, about {minutes:.0f} min left"
                if facts.get("precision") or facts.get("at_most"):
                    left = f"round {k}, {facts['minutes']:.0f} min so far"
                if draws:
                    rows = [row for row in read_climb(folder)[1] if row.failure != NOT_YET]
                    live.update(Group(screen(facts, rows, console), bar, left), refresh=True)
                if not draws or name in facts["failures"]:
                    console.print(f"{name}: {news} ({left})", soft_wrap=True)
    if len(ended) > before or "after" not in facts["clocks"]:  # else it had ended already
        from ladder.commands.gemm import clocks  # it imports torch, which --help need not

        facts["repeats"] = k
        facts["clocks"]["after"] = clocks(device_of(facts))
        save(folder, facts)
    shutil.rmtree(process.compile_cache(folder), ignore_errors=True)  # nothing is left to resume


def peak_of_round(folder: Path, facts: dict, k: int) -> str:
    """Time the large matmul again, as round k begins. Returns what came of it."""
    known, started = doubts(facts), time.monotonic()
    try:
        found = large_matmul(facts["flags"], "--again")
    except BadInput as error:
        return f"round {k}: no matmul could be timed: {error}"
    facts["minutes"] = facts.get("minutes", 0) + (time.monotonic() - started) / 60
    facts["peaks"].append(found["peak_flops"])
    facts["peak_flops"] = statistics.median(facts["peaks"])
    news = f"round {k}: a large matmul runs at {found['peak_flops'] / 1e12:.3g} TFLOP/s"
    if found["clocks"].startswith("clocks"):  # a GPU's
        facts["clocks"][f"round {k}"] = found["clocks"]
        news += f"; {found['clocks']}"
    save(folder, facts)
    return "\n".join([news, *(f"note  {line}" for line in doubts(facts) if line not in known)])


def another_round(folder: Path, facts: dict, done: int) -> bool:
    """Whether one more round follows these `done` ones.

    None does that would not end in time, if it takes as long as the others did. Beyond the rounds
    that were asked for, more are needed until all intervals are narrow enough; a row of which half
    of the runs failed is not waited for.
    """
    limit = facts.get("at_most")
    if limit and facts.get("minutes", 0) * (done + 1) / done > limit:
        return False
    if done < facts["repeats"] or not facts.get("precision") or done == MOST_ROUNDS:
        return done < facts["repeats"]
    late = not_there(read_climb(folder)[1], facts["precision"])
    return any(row.gain.rounds > done / 2 for row in late)


def run_next(folder: Path, facts: dict, path: Path, name: str, flags: list[str]) -> str:
    """One run, noted in climb.json. Returns what came of it.

    Raises BadInput if the climb cannot go on, because the code has changed.
    """
    check_code(folder, facts)
    started = time.monotonic()
    try:
        news = f"{run_once(folder, facts, path, name, flags):.0f} tok/s"
    except BadInput as error:
        check_code(folder, facts)  # which explains it
        check_logs(folder, facts)
        facts["failures"][name] = str(error)
        news = f"failed: {error}"
    facts["minutes"] = facts.get("minutes", 0) + (time.monotonic() - started) / 60
    save(folder, facts)
    return news


def check_code(folder: Path, facts: dict) -> None:
    """Raise BadInput if the scripts, or what they import, are no longer those of this climb."""
    if (now := commit()) != facts["commit"]:
        changed = f"the code changed from commit {facts['commit']} to {now}"
        raise BadInput(f"{changed}: change it back")
    if facts.get("code") not in (None, running_code()):
        raise BadInput("the code, which is not committed, changed: change it back")
    now = own_scripts(folder)
    for name, was in facts.get("sha256", {}).items():
        if now.get(name) != was:
            raise BadInput(f"{folder / name} changed: change it back")


def check_logs(folder: Path, facts: dict) -> None:
    """Raise BadInput if a log or failure in the folder is not one of this climb, or a log cannot
    stand in its table: later runs would fail for it."""
    rounds = range(1, facts["repeats"] + 2)  # kill -9 may leave a log that climb.json lacks
    known = {f"{Path(name).stem}.r{k}" for name in facts["scripts"] for k in rounds}
    logs = {path.stem for path in folder.glob("*.log")}
    if odd := (logs | facts["failures"].keys()) - known:
        raise BadInput(f"{folder} has {min(odd)}, which is no run of this climb: remove it")
    if logs:
        try:
            read_climb(folder)
        except BadInput as error:
            raise BadInput(f"{error}: remove that log") from error


def run_once(folder: Path, facts: dict, path: Path, name: str, flags: list[str]) -> float:
    """One run in a process of its own, whose log becomes NAME.log. Returns its tokens per second.

    Raises BadInput, saying why, if it failed.
    """
    cache = process.compile_cache(folder) / path.stem
    if name.endswith(".r1") and not facts.get("precompile"):
        shutil.rmtree(cache, ignore_errors=True)  # its first step is the whole compilation
    with tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH) as scratch:
        if isinstance(B := facts.get("batches", {}).get(path.stem), str):
            raise BadInput(B)  # it has none
        words = (path, *flags, *([f"--batch-size={B}"] if B else []), "--log-dir", scratch)
        # Not in /tmp: where that is full, a script that loses its screen fails.
        done = process.run_python(*words, folder=scratch, TORCHINDUCTOR_CACHE_DIR=str(cache))
        logs = list(Path(scratch).glob("*.log"))
        try:
            if done.failure:
                raise BadInput(done.failure)
            if len(logs) != 1:
                raise BadInput(f"it left {len(logs)} logs in --log-dir instead of one")
            log = read_run(logs[0])
            others = [read_log(path) for path in sorted(folder.glob("*.r*.log"))[:1]]
            check_comparable("this climb", [log, *others], kind_of(facts))
        except BadInput as error:
            (folder / f"{name}.failed").write_text(done.stderr, encoding="utf-8")
            raise BadInput(str(error).replace(scratch + os.sep, "")) from None
        os.replace(logs[0], folder / f"{name}.log")
    return log.result["tok_per_s"]


def report(folder: Path, console: Console) -> int:
    """Print the table of a climb and draw its picture; 1 if not one script came to its end."""
    facts, rows = read_climb(folder)
    console.print(screen(facts, rows, console))
    for row in (row for row in rows if row.failure):
        console.print(f"{row.stem} failed: {row.failure}", soft_wrap=True)
    good = [row for row in rows if not row.failure]
    if good:
        result = good[0].log.result
        warmup, measured = result["warmup_steps"], result["measured_steps"]
        console.print(caption(facts, rows))
        console.print(
            f"Rounds of all scripts: {facts['repeats']}. Of each run {warmup} warm-up "
            f"step{'s are' if warmup > 1 else ' is'} left out and {measured} measured. "
            "In brackets: the gain's 95 % interval; within noise: it contains 0 %."
        )
        notes = [f"note  {line}" for line in doubts(facts)]
        for line in [*foot(facts, rows), *precision_reached(facts, rows), *notes]:
            console.print(line)
        from ladder.commands.picture import draw  # matplotlib takes a second to import

        draw(facts, rows, folder / "climb.png")
    names = "Logs, climb.json, climb.png" if good else "climb.json and what the runs said"
    console.print(f"{names}: {folder}", soft_wrap=True)
    with suppress(BadInput):  # it takes the 124M model on the usual text, committed, not quick
        pack(folder)
        console.print(f"share it: ladder share {quote(str(folder))}", soft_wrap=True)
    return 0 if good else 1


def precision_reached(facts: dict, rows: list[Row]) -> list[str]:
    """A line that says whether the rounds were enough, where a precision was asked for."""
    if not (asked := facts.get("precision")) or not any(row.gain for row in rows):
        return []
    late = [f"{row.stem} (± {row.gain.width:.1f} %)" for row in not_there(rows, asked)]
    if not late:
        return [f"All intervals are narrower than ± {asked:g} %."]
    return [f"Not narrower than ± {asked:g} % over {LEAST_ROUNDS} rounds yet: {', '.join(late)}."]
