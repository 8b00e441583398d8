"""Pack a finished climb into one small file that you can send.

    ladder share runs/climb-20261121-101500

The file is compressed JSON: time and loss of each step, the device's name, versions, clocks (read
it with zcat). It has no path, no name of a person or a computer and no text of yours. Only climbs
of rungs and candidates can be shared. `ladder publish FILE` makes climb.json and the logs from it.
"""

import gzip
import json
import re
import shlex
import zlib
from pathlib import Path

from jsonschema import Draft4Validator, ValidationError  # from draft 6 on, 4.0 is an integer too

from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import git, write_atomic
from ladder.log import Log, mfu_line, pairs_line, result, step_line
from ladder.measure.rows import first_log
from ladder.show.publishable import read_publishable

LARGEST = 10_000_000  # bytes of JSON
SCHEMA = json.loads(Path(__file__).with_name("share.schema.json").read_text("utf-8"))
SIZES = ("B", "T", "steps", "seed")
RATES = ("flops_per_token", "peak_flops")  # in a log's mfu line


def add_arguments(parser):
    parser.add_argument("folder", type=Path, help="a climb's folder, such as runs/climb-…")
    parser.add_argument("--out", type=Path, help="the file (default: FOLDER.json.gz)")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    packed = pack(args.folder)
    folder = args.folder.resolve()
    out = args.out or folder.with_name(f"{folder.name}.json.gz")
    if out.exists():
        raise BadInput(f"{out} is there already: choose another --out")
    write_atomic(out, packed)
    again = f'ladder publish {shlex.quote(str(out))} "One sentence: what it shows."'
    print(
        f"written: {out}, {len(packed) / 1e3:.0f} kB of numbers, without paths and names\n"
        f"Attach it to an issue of the project, or open a pull request with what\n    {again}\n"
        "changes: logs/ gets the logs, RUNLOG.md an entry and a row for your machine."
    )
    return 0


def pack(folder: Path) -> bytes:
    """The shared form of a climb. Raises BadInput if it cannot be published, or not be shared."""
    climb, rows = read_publishable(folder)
    shared = {}
    for key in SCHEMA["properties"]:
        if climb.get(key) is not None:
            shared[key] = climb[key]
    header = first_log(rows).run
    for key in SIZES:
        shared[key] = int(header[key])
    shared["failures"] = {}
    for name, why in climb["failures"].items():  # the whole text may name paths
        known = re.match("out of memory|killed by SIG[A-Z]+", why)
        shared["failures"][name] = known[0] if known else "it failed"
    shared["runs"] = {}
    for row in rows:
        for k, log in row.logs.items():
            shared["runs"][f"{row.stem}.r{k}"] = numbers(log)
    try:
        check(shared)
    except ValueError as error:
        words = "only numbers, of rungs and candidates, are shared, but"
        raise BadInput(f"{folder}: {words} {error}") from None
    return gzip.compress(json.dumps(shared).encode(), mtime=0)


def numbers(log: Log) -> dict:
    """One run as it is shared."""
    run = {
        "dt": [round(step["dt"] * 1e3, 2) for step in log.steps],  # milliseconds
        "loss": [step["loss"] for step in log.steps],
        "params": int(log.run["params"]),
        "effective": log.effective,
    }
    for key in RATES:
        if log.mfu[key] != "unknown":
            run[key] = int(float(log.mfu[key]))
    if log.result["peak_bytes"]:
        run["peak_bytes"] = log.result["peak_bytes"]
    return run


def check(shared: dict):
    """Raise ValueError, saying where, unless `shared` has the form that SCHEMA says."""
    try:
        Draft4Validator(SCHEMA).validate(shared)
    except ValidationError as error:
        raise ValueError(f"{error.json_path}: {error.message:.120}") from None


def refuse(word: str):
    """Raise ValueError for NaN, Infinity or -Infinity, which are no JSON."""
    raise ValueError(f"{word} is no number")


def unpack(path: Path, folder: Path) -> Path:
    """Make climb.json and the logs of a shared climb in `folder`, from its numbers; returns it.

    Raises BadInput unless they are what `pack` writes, of a commit that this checkout has.
    """
    try:
        with gzip.open(path) as file:
            climb = json.loads(file.read(LARGEST), parse_constant=refuse)
        check(climb)
        if git("cat-file", "-e", climb["commit"]).returncode:
            raise ValueError(f"this checkout has no commit {climb['commit']}: git fetch")
        runs = climb.pop("runs")
        sizes = {key: climb.pop(key) for key in SIZES}
        scripts = {Path(name).stem: name for name in climb["scripts"]}
        for name, run in runs.items():
            script = scripts[name.partition(".")[0]]
            (folder / f"{name}.log").write_text(log_text(script, climb, sizes, run))
    except (OSError, EOFError, zlib.error, LookupError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not a file of ladder share, or damaged: {error}") from None
    climb["flags"] = [
        f"--batch-size={sizes['B']}",
        f"--seq-len={sizes['T']}",
        f"--steps={sizes['steps']}",
        f"--seed={sizes['seed']}",
    ]
    (folder / "climb.json").write_text(json.dumps(climb, indent=1) + "\n")
    return folder


def log_text(script: str, climb: dict, sizes: dict, run: dict) -> str:
    """The log of one run."""
    header = {
        "script": script,
        "commit": climb["commit"],
        "torch": climb["versions"]["torch"],
        "python": climb["versions"]["python"],
        "device": climb["device"],
        "model": "gpt2",
        "params": run["params"],
        **sizes,
        "data": "tinyshakespeare",
        "data_sha256": TINYSHAKESPEARE_SHA256[:12],
    }
    tokens = sizes["B"] * sizes["T"]
    times = [ms / 1e3 for ms in run["dt"]]
    lines = [pairs_line("run", header)]
    for step in range(sizes["steps"]):
        dt = times[step]
        loss = run["loss"][step]
        line = step_line(step, sizes["steps"], loss=loss, dt=dt, tok_per_s=tokens / dt)
        lines.append(line)
    lines.insert(3, pairs_line("effective", run["effective"]))  # of the second step
    rates = {key: run.get(key) for key in RATES}
    memory = run.get("peak_bytes")
    numbers = result(
        times, run["loss"], steps=sizes["steps"], tokens_per_step=tokens, peak_bytes=memory, **rates
    )
    lines.append(mfu_line(**rates, mfu=numbers["mfu"]))
    lines.append("RESULT " + json.dumps({"script": script, "status": "ok", **numbers}))
    return "\n".join(lines) + "\n"
