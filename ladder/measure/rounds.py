"""A climb: its folder with climb.json and a copy of the code, and its runs, round by round.

Every run is a process of its own and starts from the copy. Every second round is backwards.
"""

import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ladder import cli, machine
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import ROOT, SCRIPTS, commit, make_folder, running_files, write_atomic
from ladder.log import read_log
from ladder.measure import process, scripts
from ladder.measure.kinds import kind_of
from ladder.measure.rows import (
    OUT_OF_MEMORY,
    check_comparable,
    out_of_memory,
    read_climb_json,
    runs_of,
)
from ladder.text import show

PASSED_ON = [name for name in cli.FLAGS if name != "log_dir"]  # to every script
# Rates in climb.json, each the median of a list with one of each round.
RATES = {"peak_flops": "peaks", "fp32_flops": "fp32_peaks", "copy_bytes_per_s": "copy_rates"}


def prepare(args, kind: str, chosen: list[Path], sizes: list[int] = ()) -> Path:
    """Make the folder of a climb, with climb.json and a copy of the code; time a large matmul.

    With `sizes` each script runs at each of these B. Raises BadInput and leaves no folder if
    something is wrong with what was asked for.
    """
    started = time.monotonic()
    chosen = [*dict.fromkeys(chosen)]  # one named twice counts once
    own = scripts_from_outside(chosen)
    check_flags(args, sizes)
    load = machine.load()
    print("timing a large matmul, as before each round: up to half a minute")
    measured = large_matmul(process.given_flags(args, "device"))
    folder = make_folder(args.out, kind)
    names = [path.name if path in own else scripts.shown(path) for path in chosen]
    packages = filter(find_spec, ("torch", "numpy", "tiktoken", "transformers"))
    climb = {
        "kind": kind,
        "started": f"{datetime.now():%Y-%m-%d %H:%M}",
        "commit": commit(),
        "repeats": args.repeats or 3,
        "at_most": args.at_most,
        "minutes": (time.monotonic() - started) / 60,
        "quick": bool(getattr(args, "quick", False)),
        "flags": process.given_flags(args, *(name for name in PASSED_ON if name != "data")),
        "data": args.data and str(Path(args.data).resolve()),
        "versions": {"python": platform.python_version()},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(load, 1),
        "clocks": {"before": measured.pop("clocks")},
        "failures": {},
        "scripts": names,
        **measured,
    }
    climb["versions"] |= {name: version(name) for name in packages}
    add_rates(climb, measured)
    if sizes:
        climb["runs"] = []
    for B in sizes:
        for name in names:
            climb["runs"].append([f"{Path(name).stem}_B{B}", name, f"--batch-size={B}"])
    copy_code(folder / "code", own, climb["commit"])
    save(folder, climb)
    return folder


def scripts_from_outside(chosen: list[Path]) -> list[Path]:
    """Those of the scripts that are not this project's.

    Raises BadInput if one of them has the file name of another script: its logs would too.
    """
    ours = scripts.chain() + scripts.peer_scripts() + [ROOT / name for name in SCRIPTS]
    own = [path for path in chosen if path not in ours]
    names = {path.stem for path in ours}
    for path in own:
        if path.stem in names:
            raise BadInput(f"{path}: another script has this file name too: rename yours")
        names.add(path.stem)
    return own


def check_flags(args, sizes: list[int]):
    """Raise BadInput for a wrong --out, device, T or corpus: every run would fail for it."""
    from ladder.batches import Batches  # it imports torch, which --help need not

    if args.out and Path(args.out).exists():
        raise BadInput(f"{args.out} is there already: choose another --out, or --resume that")
    flags = process.given_flags(args, *PASSED_ON)
    if sizes:
        flags.append(f"--batch-size={max(sizes)}")
    asked = cli.parse_args(__doc__, flags)
    Batches(load_corpus(args.data, show), asked.batch_size, asked.seq_len)


def copy_code(code: Path, own: list[Path], commit: str):
    """Copy what a climb starts and imports. Scripts from outside (`own`) go beside baseline.py."""
    copies = {path: path.name for path in own}
    for path in running_files():
        copies[path] = path.relative_to(ROOT)
    for path, name in copies.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, code / name)
    (code / "COMMIT").write_text(commit + "\n")


def large_matmul(flags: list[str], package: Path = ROOT) -> dict:
    """What matmul.py measures on the device that these flags name. Raises BadInput."""
    device = [flag for flag in flags if flag.startswith("--device=")]
    done = process.run_python("-m", "ladder.measure.matmul", *device, package=package)
    if done.failure:
        raise BadInput(done.failure)
    return json.loads(done.stdout.splitlines()[-1])  # libraries may print above it


def add_rates(climb: dict, measured: dict):
    """Add one round's rates of matmuls and copies to their lists, and take the medians again."""
    for rate, by_round in RATES.items():
        if rate in measured:
            climb.setdefault(by_round, []).append(measured[rate])
            climb[rate] = statistics.median(climb[by_round])


def save(folder: Path, climb: dict):
    write_atomic(folder / "climb.json", json.dumps(climb, indent=1).encode() + b"\n")


def seconds_left(climb: dict) -> float:
    """How long the climb may still take; infinite without --at-most."""
    limit = climb["at_most"] or math.inf
    return (limit - climb["minutes"]) * 60


def run_rounds(
    folder: Path, scratch: Path, say: Callable, forecast: Callable, show_table: Callable
) -> dict:
    """Run, round by round, what climb.json asks for and is not done yet; returns climb.json.

    say(line) prints a line; forecast(climb) says, after each run, what is left; show_table() shows
    the rounds so far, before another one. What is compiled is kept in `scratch` for later rounds.
    """
    climb = read_climb_json(folder)
    for name, why in list(climb["failures"].items()):
        if why != OUT_OF_MEMORY:  # that is a result; what failed else is due again
            del climb["failures"][name]
    ended = [*folder.glob("*.r*.log")]
    if ended:
        kept = f"going on with {folder}: {len(ended)} runs are kept"
        say(f"{kept}; its code/ runs, without your edits since")
    k = 1  # round 1, or those that were begun before --resume
    for path in ended:
        k = max(k, int(path.stem.rpartition(".r")[2]))
    for begun in range(1, k + 1):
        run_round(folder, climb, begun, scratch, say, forecast)
    while another_round(climb, k):
        show_table()
        k += 1
        run_round(folder, climb, k, scratch, say, forecast)
    climb["repeats"] = k
    return climb


def another_round(climb: dict, done: int) -> bool:
    """Whether more than these `done` rounds are wanted and one of mean length would end in time."""
    mean_seconds = climb["minutes"] / done * 60
    return done < climb["repeats"] and mean_seconds <= seconds_left(climb)


def run_round(folder: Path, climb: dict, k: int, scratch: Path, say: Callable, forecast: Callable):
    """Do the runs of round k that are not done yet, until the climb's time is over."""
    while seconds_left(climb) > 0:
        due = runs_due(folder, climb, k)
        if not due:
            return
        if len(climb["peaks"]) < k:  # one of each round; prepare() timed that of round 1
            say(f"round {k}: timing a large matmul")
            time_matmul(folder, climb)
            say(f"round {k}: it runs at {climb['peaks'][-1] / 1e12:.3g} TFLOP/s")
            continue
        now = f"{due[0][0]}, round {k} of {climb['repeats']}"
        say(f"{now}, running since {datetime.now():%H:%M}")
        news = run_and_record(folder, climb, due[0], k, scratch)
        say(f"{now}: {news} ({forecast(climb)})")


def runs_due(folder: Path, climb: dict, k: int) -> list[list[str]]:
    """The runs of round k that are not done yet, in the order in which they are run."""
    order = [*runs_of(climb)]
    if climb.get("quick"):
        order.insert(1, order.pop())  # the top comes second: the time may not do for all
    if k % 2 == 0:
        order.reverse()  # so that what a run does to the next one, such as heat, cancels out
    too_large = out_of_memory(climb)
    due = []
    for run in order:
        name = f"{run[0]}.r{k}"
        done = name in climb["failures"] or (folder / f"{name}.log").exists()
        if not done and run[0] not in too_large:
            due.append(run)
    return due


def time_matmul(folder: Path, climb: dict):
    """Time the large matmul again, as a round begins."""
    started = time.monotonic()
    add_rates(climb, large_matmul(climb["flags"], folder / "code"))
    climb["minutes"] += (time.monotonic() - started) / 60


def run_and_record(folder: Path, climb: dict, run: list[str], k: int, scratch: Path) -> str:
    """Do one run, and save in climb.json how it ended. Returns that in a few words."""
    name = run[0]
    started = time.monotonic()
    try:
        news = f"{run_once(folder, climb, run, k, scratch):.0f} tok/s"
    except subprocess.TimeoutExpired:
        news = "stopped, the time is over"
    except BadInput as error:
        why = str(error)
        news = f"failed: {why}"
        if kind_of(climb).varied and re.search("^out of memory|memory is full$", why):
            news = why.partition(":")[0]
            why = OUT_OF_MEMORY
        climb["failures"][f"{name}.r{k}"] = why
    climb["minutes"] += (time.monotonic() - started) / 60
    save(folder, climb)
    return news


def run_once(folder: Path, climb: dict, run: list[str], k: int, scratch: Path) -> float:
    """One run in a process of its own, whose log becomes NAME.rK.log. Returns its tok/s.

    Raises BadInput, saying why, if it failed; then NAME.rK.failed has what it wrote to stderr.
    """
    name = f"{run[0]}.r{k}"
    failed = folder / f"{name}.failed"
    failed.unlink(missing_ok=True)
    log_dir = scratch / name
    log_dir.mkdir(parents=True)
    left = seconds_left(climb)
    done = process.run_python(
        *words_of(folder, climb, run, k),
        "--log-dir",
        log_dir,
        package=(folder / "code").resolve(),
        timeout=left if left < math.inf else None,
        TORCHINDUCTOR_CACHE_DIR=str(scratch / run[0]),
    )
    try:
        path = log_of(done, log_dir)
        log = read_log(path)
        if log.result["status"] != "ok":
            raise BadInput(f"its run ended {log.result['status']}")
        earlier = sorted(folder.glob("*.r*.log"))
        if earlier:
            check_comparable("this climb", [log, read_log(earlier[0])], climb)
    except BadInput as error:
        write_atomic(failed, done.stderr.encode())
        raise BadInput(str(error).replace(f"{log_dir}{os.sep}", "")) from None
    write_atomic(folder / f"{name}.log", path.read_bytes())
    return log.result["tok_per_s"]


def words_of(folder: Path, climb: dict, run: list[str], k: int) -> list:
    """The script of a run and its flags, as words of a command line. Each round has its own seed,
    the same for all runs: the first one's, and one more for each round."""
    _name, script, *own_flags = run
    path = (folder / "code" / script).resolve()
    first_seed = cli.parse_args(__doc__, climb["flags"]).seed
    words = [path, *climb["flags"], f"--seed={first_seed + k - 1}"]
    if climb["data"]:
        words.append(f"--data={climb['data']}")
    if "from ladder.ranks import" in path.read_text("utf-8", "replace"):  # ddp_run.py
        words.append("--ckpt-every=0")
    return words + own_flags


def log_of(done: process.Finished, log_dir: Path) -> Path:
    """The log that a run wrote. Raises BadInput if it failed or wrote none."""
    if done.failure:
        raise BadInput(done.failure)
    logs = [*log_dir.glob("*.log")]
    if not logs:
        raise BadInput("it wrote no log to --log-dir")
    return logs[0]
