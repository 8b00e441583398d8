"""Run rungs one after the other, several times over, and say what each one gains on this machine.

    ladder climb                              all rungs, three times: an hour on a small CPU
    ladder climb 0 3 5-7 --repeats 5          some of them; a path to a script is welcome too
    ladder climb --model tiny --steps 5 --repeats 1
    ladder climb --resume                     go on with the last climb that was stopped

Every run is a process of its own. The order is 0, 1, …, top, 0, 1, …, so that a machine that slows
down slows all rungs alike; a gain is the mean of the log ratios between neighbours in the same
round, with its 95 % interval. Nothing that git tracks is changed unless --publish is given.
"""

import json
import os
import platform
import shutil
import tempfile
import time
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from ladder.cli import FLAGS, add_flags, check_seq_len, given_flags, pick_device, positive
from ladder.commands import process
from ladder.commands.gemm import clocks
from ladder.commands.results import read_climb, read_facts
from ladder.commands.scripts import all_scripts, peer_scripts, select
from ladder.commands.tables import caption, screen
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import ROOT, commit, write_whole
from ladder.log import read_log

PASSED_ON = [name for name in FLAGS if name != "log_dir"]  # to every script


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", help="numbers, ranges or paths (default: all)")
    # None, not False: --resume refuses whatever was given beside it.
    words = "know 13 and up too; with no numbers, climb the last rung and all exact candidates"
    parser.add_argument("--candidates", action="store_true", default=None, help=words)
    parser.add_argument("--resume", nargs="?", const="", metavar="DIR", help="default: the last")
    parser.add_argument("--publish", metavar="FINDING", help="then publish it with this sentence")
    add_run_arguments(parser)


def add_run_arguments(parser):
    """What every subcommand that runs scripts in rounds takes."""
    parser.add_argument("--repeats", type=positive, help="rounds (default: 3)")
    parser.add_argument("--out", help="folder for logs and results (default: runs/…)")
    add_flags(parser.add_argument_group("flags of every script"), *PASSED_ON)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.resume is not None:
        asked = {**vars(args), "resume": None, "publish": None}
        if given := [name for name, value in asked.items() if value not in (None, [])]:
            names = ", ".join(given).replace("_", "-")
            raise BadInput(f"--resume does what the climb was asked for: give no {names} with it")
        folder = find_stopped(args.resume)
    else:
        folder = new_folder(args, "climb", select(args.rungs, args.candidates))
    status = run_and_report(folder)
    if status == 0 and args.publish:
        from ladder.commands.publish import publish

        publish(folder, args.publish)
    return status


def new_folder(args, kind: str, scripts: list[Path]) -> Path:
    """Make the folder of a climb with its climb.json, after measuring a large matmul's rate.

    Scripts from elsewhere are copied into it, so that they stay beside their logs. Raises BadInput
    and leaves no folder where something is wrong with what was asked for.
    """
    if len({path.stem for path in scripts}) < len(scripts):
        raise BadInput("two of these scripts have the same file name: rename one")
    if args.out and Path(args.out, "climb.json").exists():
        other = f"choose another --out, or --resume {args.out}"
        raise BadInput(f"{args.out} has a climb already: {other}")
    check_seq_len(args.seq_len)
    if args.data:  # told once and now, not by every run
        load_corpus(args.data, print)
    peak = process.run_python("-m", "ladder.commands.gemm", *given_flags(args, "device"))
    if peak.failure:
        raise BadInput(peak.failure)
    found = json.loads(peak.stdout)
    folder = process.new_folder(args.out, kind, exist_ok=True)
    own = [*all_scripts(), *peer_scripts()]
    for path in set(scripts) - set(own):
        shutil.copy(path, folder / path.name)
    facts = {
        "kind": kind,
        "started": f"{datetime.now():%Y-%m-%d %H:%M}",
        "commit": commit(),
        "repeats": args.repeats or 3,
        "flags": given_flags(args, *(name for name in PASSED_ON if name != "data")),
        "data": args.data and str(Path(args.data).resolve()),
        "versions": versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "clocks": {"before": found.pop("clocks")},
        "failures": {},
        "scripts": [p.relative_to(ROOT).as_posix() if p in own else p.name for p in scripts],
        **found,
    }
    save(folder, facts)
    return folder


def versions() -> dict[str, str]:
    names = ["torch", "numpy", "tiktoken", *(["transformers"] if find_spec("transformers") else [])]
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def save(folder: Path, facts: dict):
    write_whole(folder / "climb.json", json.dumps(facts, indent=1).encode() + b"\n")


def find_stopped(name: str) -> Path:
    """The climb of this name, or the newest under runs/ if it is empty.

    Raises BadInput if there is none, or it began under other conditions than those of now.
    """
    folders = [Path(name)] if name else [p.parent for p in Path("runs").glob("climb-*/climb.json")]
    if not folders:
        raise BadInput("there is no climb under runs/: start one without --resume")
    folder = max(folders)
    if not (facts := read_facts(folder)):
        raise BadInput(f"{folder} is no climb: it has no climb.json")
    for key, now in (("commit", commit()), ("versions", versions())):
        if facts[key] != now:
            raise BadInput(f"{folder} began with {key} {facts[key]}, now it is {now}: start anew")
    return folder


def run_and_report(folder: Path) -> int:
    """Do what is left of a climb and print its table; 130 if Ctrl-C stopped it."""
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe has no edge to wrap at
        console.width = 120
    try:
        run_rounds(folder, console)
    except KeyboardInterrupt:
        done = len(list(folder.glob("*.r*.log")))
        news = f"stopped; {done} runs are kept. Go on: ladder climb --resume {folder}"
        console.print(news, markup=False, soft_wrap=True)
        return 130
    return report(folder, console)


def run_rounds(folder: Path, console: Console) -> None:
    """Run, round by round, what climb.json asks for and is not done yet.

    Each run gets a line as it ends. While it is under way this process sleeps; on a terminal it
    redraws a bar once a second.
    """
    facts = read_facts(folder)
    scripts = [folder / n if (folder / n).exists() else ROOT / n for n in facts["scripts"]]
    flags = facts["flags"] + (["--data", facts["data"]] if facts["data"] else [])
    runs = [(path, f"{path.stem}.r{k + 1}") for k in range(facts["repeats"]) for path in scripts]
    ended = facts["failures"].keys() | {path.stem for path in folder.glob("*.r*.log")}
    left = [(path, name) for path, name in runs if name not in ended]
    before, started = len(runs) - len(left), time.monotonic()
    options = dict(refresh_per_second=1, speed_estimate_period=3600)
    # A Progress that is disabled has no thread.
    with Progress(console=console, disable=not console.is_terminal, **options) as bar:
        task = bar.add_task("", total=len(runs), completed=before)
        for done, (path, name) in enumerate(left, 1):
            bar.update(task, description=name)
            try:
                news = f"{run_once(folder, path, name, flags):.0f} tok/s"
            except BadInput as error:
                facts["failures"][name] = str(error)
                news = f"failed: {error}"
            save(folder, facts)
            bar.advance(task)
            minutes = (time.monotonic() - started) / done * (len(left) - done) / 60
            news += f" ({before + done} of {len(runs)} runs, about {minutes:.0f} min left)"
            console.print(f"{name}: {news}", markup=False, soft_wrap=True)
    device = [f.removeprefix("--device=") for f in facts["flags"] if f.startswith("--device=")]
    facts["clocks"]["after"] = clocks(pick_device(device[0] if device else None))
    save(folder, facts)
    shutil.rmtree(folder / "cache", ignore_errors=True)  # nothing is left to resume


def run_once(folder: Path, path: Path, name: str, flags: list[str]) -> float:
    """One run in a process of its own, whose log becomes NAME.log. Returns its tokens per second.

    Raises BadInput, saying why, if it failed.
    """
    cache = folder.resolve() / "cache" / path.stem
    if name.endswith(".r1"):  # whose first step is the whole compilation
        shutil.rmtree(cache, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        words = (path, *flags, "--log-dir", scratch)
        done = process.run_python(*words, TORCHINDUCTOR_CACHE_DIR=str(cache))
        logs = list(Path(scratch).glob("*.log"))
        why = None if len(logs) == 1 else f"it left {len(logs)} logs in --log-dir instead of one"
        if why := done.failure or why:
            (folder / f"{name}.failed").write_text(done.stderr, encoding="utf-8")
            raise BadInput(why)
        rate = read_log(logs[0]).result["tok_per_s"]
        os.replace(logs[0], folder / f"{name}.log")
    return rate


def report(folder: Path, console: Console) -> int:
    """Print the table of a climb and draw its picture; 1 if not one script came to its end."""
    facts, rows = read_climb(folder)
    console.print(screen(facts, rows))
    good = [row for row in rows if not row.failure]
    if good:
        from ladder.commands.picture import draw  # matplotlib takes a second to import

        result = next(iter(good[0].logs.values())).result
        console.print(caption(facts, rows), markup=False)
        console.print(
            f"Each run: {result['warmup_steps']} warm-up steps left out, "
            f"{result['measured_steps']} measured. Bounds: 95 % intervals of the paired rounds."
        )
        draw(facts, rows, folder / "climb.png")
    names = "Logs, climb.json, climb.png" if good else "climb.json and what the runs said"
    console.print(f"{names}: {folder}", soft_wrap=True, markup=False)
    return 0 if good else 1
