"""Run rungs one after the other, several times over, and say what each one gains on this machine.

    ladder climb                              all rungs, three times: an hour on a small CPU
    ladder climb 0 3 5-7 --repeats 5          some of them; a path to a script is welcome too
    ladder climb --model tiny --steps 5 --repeats 1
    ladder climb --resume                     go on with the last climb that was stopped

Every run is a process of its own. The order is 0, 1, …, top, 0, 1, …, so that a machine that slows
down slows all rungs alike; a gain is the median of the ratios between neighbours in the same round,
with its 95 % interval. Nothing that git tracks is changed unless --publish is given.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ladder.cli import MODELS, check_seq_len, positive, seed
from ladder.commands.process import new_folder as results_folder
from ladder.commands.process import run_python
from ladder.commands.results import read_climb, read_facts
from ladder.commands.scripts import all_scripts, peer_scripts, select
from ladder.commands.tables import caption, screen
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import ROOT, commit

FLAGS = ("model", "steps", "batch_size", "seq_len", "seed", "device")  # go to every script
ASKED = ("rungs", "repeats", "out", *FLAGS, "data")


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", help="numbers, ranges or paths (default: all)")
    parser.add_argument("--resume", nargs="?", const="", metavar="DIR", help="default: the last")
    parser.add_argument("--publish", metavar="FINDING", help="then publish it with this sentence")
    add_run_arguments(parser)


def add_run_arguments(parser):
    """What every subcommand that runs scripts in rounds takes."""
    parser.add_argument("--repeats", type=positive, help="rounds (default: 3)")
    parser.add_argument("--out", help="folder for logs and results (default: runs/…)")
    parser.add_argument("--model", choices=MODELS, help="these flags go to every script:")
    for flag in ("--steps", "--batch-size", "--seq-len"):
        parser.add_argument(flag, type=positive)
    parser.add_argument("--seed", type=seed)
    parser.add_argument("--device")
    parser.add_argument("--data")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.resume is not None:
        if given := [name for name in ASKED if getattr(args, name) not in (None, [])]:
            names = ", ".join(given).replace("_", "-")
            raise BadInput(f"--resume does what the climb was asked for: give no {names} with it")
        folder = Path(args.resume) if args.resume else latest()
        check_resume(folder)
    else:
        folder = new_folder(args, "climb", select(args.rungs))
    status = run_and_report(folder)
    if status == 0 and args.publish:
        from ladder.commands.publish import publish

        publish(folder, args.publish)
    return status


def new_folder(args, kind: str, scripts: list[Path]) -> Path:
    """Make the folder of a climb with its climb.json, after measuring a large matmul's rate.

    Scripts from elsewhere are copied into it, so that they stay beside their logs.
    """
    stems = [path.stem for path in scripts]
    if len(set(stems)) < len(stems):
        raise BadInput("two of these scripts have the same file name: rename one")
    folder = results_folder(args.out, kind, exist_ok=True)
    if (folder / "climb.json").exists():
        raise BadInput(f"{folder} has a climb already: choose another --out, or --resume {folder}")
    check_seq_len(args.seq_len)
    if args.data:  # told once and now, not by every run
        load_corpus(args.data, print)
    peak = measure_peak(args.device)
    names, own = [], [*all_scripts(), *peer_scripts()]
    for path in scripts:
        if path in own:
            names.append(path.relative_to(ROOT).as_posix())
        else:
            names.append(path.name)
            shutil.copy(path, folder / path.name)
    save(folder, {"kind": kind, **describe_climb(args), "scripts": names, **peak})
    return folder


def describe_climb(args) -> dict:
    """The conditions of a climb, as climb.json keeps them."""
    given = [(name, getattr(args, name)) for name in FLAGS]
    return {
        "started": f"{datetime.now():%Y-%m-%d %H:%M}",
        "commit": commit(),
        "repeats": args.repeats or 3,
        "flags": [f"--{n.replace('_', '-')}={v}" for n, v in given if v is not None],
        "data": args.data and str(Path(args.data).resolve()),
        "versions": versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "clocks": {"before": clocks()},
        "failures": {},
    }


def versions() -> dict[str, str]:
    names = ["torch", "numpy", "tiktoken", *(["transformers"] if find_spec("transformers") else [])]
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def measure_peak(device: str | None) -> dict:
    """The device and its bfloat16 matmul rate, taken in a process of its own."""
    done = run_python("-m", "ladder.commands.gemm", *(["--device", device] if device else []))
    if done.failure:
        raise BadInput(done.failure)
    return json.loads(done.stdout)


def clocks() -> str:
    """Clock rates right now: of each GPU where nvidia-smi answers, else of the CPU cores."""
    query = "--query-gpu=clocks.sm,clocks.mem,power.limit"
    try:
        answer = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
        return answer.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        cpuinfo = Path("/proc/cpuinfo")
        found = re.findall(r"cpu MHz\s*: (\d+)", cpuinfo.read_text()) if cpuinfo.exists() else []
        return ", ".join(f"{mhz} MHz" for mhz in found) or "unknown"


def save(folder: Path, facts: dict) -> None:
    """Write climb.json whole or not at all."""
    temporary = folder / "climb.json.tmp"
    temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, folder / "climb.json")


def latest() -> Path:
    """The newest climb under runs/."""
    folders = sorted(path.parent for path in Path("runs").glob("climb-*/climb.json"))
    if not folders:
        raise BadInput("there is no climb under runs/: start one without --resume")
    return folders[-1]


def check_resume(folder: Path) -> None:
    """Raise BadInput if the conditions of a climb are not those of now."""
    if not (folder / "climb.json").exists():
        raise BadInput(f"{folder} is no climb: it has no climb.json")
    facts = read_facts(folder)
    for key, now in (("commit", commit()), ("versions", versions())):
        if facts[key] != now:
            raise BadInput(f"{folder} began with {key} {facts[key]}, now it is {now}: start anew")


def run_and_report(folder: Path) -> int:
    """Do what is left of a climb and print its table; 130 if Ctrl-C stopped it."""
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no edge to wrap at
        console = Console(width=120)
    try:
        run_rounds(folder, console)
    except KeyboardInterrupt:
        done = len(list(folder.glob("*.r*.log")))
        console.print(f"stopped; {done} runs are kept. Go on: ladder climb --resume {folder}")
        return 130
    return report(folder, console)


def run_rounds(folder: Path, console: Console) -> None:
    """Run, round by round, what climb.json asks for and is not done yet."""
    facts = read_facts(folder)
    scripts = [folder / n if (folder / n).exists() else ROOT / n for n in facts["scripts"]]
    flags = facts["flags"] + (["--data", facts["data"]] if facts["data"] else [])
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("runs, time left"), TimeRemainingColumn()]
    with Progress(*columns, console=console, speed_estimate_period=3600) as progress:
        task = progress.add_task("", total=facts["repeats"] * len(scripts))
        for repeat in range(1, facts["repeats"] + 1):
            for path in scripts:
                name = f"{path.stem}.r{repeat}"
                progress.update(task, description=name)
                if not (folder / f"{name}.log").exists() and name not in facts["failures"]:
                    if failure := run_once(folder, path, name, flags, fresh_cache=repeat == 1):
                        facts["failures"][name] = failure
                        console.print(f"{name} failed: {failure}", markup=False)
                    save(folder, facts)
                progress.advance(task)
    facts["clocks"]["after"] = clocks()
    save(folder, facts)


def run_once(folder: Path, path: Path, name: str, flags: list[str], fresh_cache: bool):
    """One run in a process of its own; its log becomes NAME.log. Returns why it failed, or None."""
    cache = folder.resolve() / "cache" / path.stem
    if fresh_cache:
        shutil.rmtree(cache, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        words = (path, *flags, "--log-dir", scratch)
        done = run_python(*words, TORCHINDUCTOR_CACHE_DIR=str(cache))
        logs = list(Path(scratch).glob("*.log"))
        if not done.failure and len(logs) == 1:
            os.replace(logs[0], folder / f"{name}.log")
            return None
    (folder / f"{name}.failed").write_text(done.stderr, encoding="utf-8")
    return done.failure or f"it left {len(logs)} logs in --log-dir instead of one"


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
