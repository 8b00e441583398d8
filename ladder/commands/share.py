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

from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import git, write_atomic
from ladder.log import mfu_line, pairs_line, result, step_line
from ladder.measure.parser import Log
from ladder.measure.rows import first_log
from ladder.show.publishable import read_publishable

LARGEST = 10_000_000  # bytes of JSON
RATES = ("flops_per_token", "peak_flops")  # in a log's mfu line
RATE = (1e6, 1e18)  # FLOP/s, or bytes per second
RUN_NAME, WORD, NAME = r"\w{1,60}\.r\d{1,4}", r"[\w.:+-]{1,40}", r"[\w .,()@/+-]{1,80}"
WHY = "out of memory|killed by SIG[A-Z]{1,8}|it failed"
# What a shared climb holds. A str is a regular expression for the whole of a text, a pair the
# bounds of a number (of two int: an integer), float any float, a list has what its one element
# says. The keys of a dict match too; one that is a plain word must be there.
RUN = {
    "dt": [(1e-3, 1e9)],  # milliseconds
    "loss": [(0.0, 1e3)],
    "norm|lr": [float],  # inf or nan in a step that float16 skipped
    "params": (1, 10**10),
    "flops_per_token": (1, 10**11),
    "(peak_flops)": RATE,  # of the data sheet
    "(peak_bytes)": (1, 10**15),
    "effective": {r"\w{1,20}": r"[\w().+:-]{1,60}"},
}
SIZES = dict.fromkeys(("B", "T", "steps"), (1, 10**6)) | {"seed": (-(2**63), 2**64)}
SCHEMA = {
    "kind": "climb",
    "started": r"\d{4}-\d\d-\d\d \d\d:\d\d",
    "commit": "[0-9a-f]{12}",
    "repeats": (1, 9999),
    "scripts": [r"(baseline|(speedups|candidates)/\d\d_\w{1,50})\.py"],
    **dict.fromkeys(("device", "system"), NAME),
    "(cores)": (1, 10**5),
    "(load)": (0.0, 1e5),
    "versions": {"python": WORD, "torch": WORD, WORD: WORD},
    "clocks": {r"before|after|round \d{1,4}": r"[\w .,\[\]/-]*"},
    "(peaks)": [RATE],  # of a large matmul, by round
    "peak_flops": RATE,
    "(peak_dtype)": "bfloat16|float16|float32",
    "(fp32_flops|copy_bytes_per_s)": RATE,
    "failures": {RUN_NAME: WHY},
    **SIZES,
    "runs": {RUN_NAME: RUN},
}


def add_arguments(parser):
    parser.add_argument("folder", type=Path, help="a climb's folder, such as runs/climb-…")
    parser.add_argument("--out", type=Path, help="the file (default: FOLDER.json.gz)")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    packed, folder = pack(args.folder), args.folder.resolve()
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
    facts, rows = read_publishable(folder)
    header, failures = first_log(rows).run, facts["failures"].items()
    shared = {key: facts[key] for key in facts if form_of(key, SCHEMA) and facts[key] is not None}
    shared |= {key: int(header[key]) for key in SIZES}
    # Why a run failed may name paths.
    shared["failures"] = {k: (re.match(WHY, why) or ["it failed"])[0] for k, why in failures}
    runs = {f"{row.stem}.r{k}": log for row in rows for k, log in row.logs.items()}
    shared["runs"] = {name: numbers(log) for name, log in runs.items()}
    try:
        check(shared, SCHEMA)
    except ValueError as error:
        words = "only numbers, of rungs and candidates, are shared, but"
        raise BadInput(f"{folder}: {words} {error}") from None
    return gzip.compress(json.dumps(shared).encode(), mtime=0)


def numbers(log: Log) -> dict:
    """One run as it is shared."""
    keys = [key for key in log.steps[0] if form_of(key, RUN)]  # neither the number nor tok/s
    kept = {key: [step[key] for step in log.steps] for key in keys}
    kept["dt"] = [round(dt * 1e3, 2) for dt in kept["dt"]]
    kept |= {"params": int(log.run["params"]), "effective": log.effective}
    kept |= {key: int(float(log.mfu[key])) for key in RATES if log.mfu[key] != "unknown"}
    memory = log.result["peak_bytes"]
    return kept | ({"peak_bytes": memory} if memory else {})


def form_of(key: str, forms: dict):
    """The form of a key in one of the dicts above; None if it is in none."""
    return next((forms[k] for k in forms if re.fullmatch(k, key, flags=re.ASCII)), None)


def check(value, form, where: str = "it") -> None:
    """Raise ValueError, saying where, unless `value` has this form."""
    good = form is float and type(value) is float
    match form, value:
        case dict(), dict():
            good = value.keys() >= {key for key in form if key.isidentifier()}
            for key in value:
                check(value[key], form_of(key, form), key)
        case [one], list():
            good = [check(part, one, where) for part in value]
        case str(), str():
            good = re.fullmatch(form, value, flags=re.ASCII)
        case (low, high), int() | float():
            good = type(value) in (int, type(low)) and low <= value <= high
    if not good:
        raise ValueError(f"{where} cannot be {value!r:.80}")


def unpack(path: Path, folder: Path) -> Path:
    """Make climb.json and the logs of a shared climb in `folder`, from its numbers; returns it.

    Raises BadInput unless they are what `pack` writes, of a commit that this checkout has.
    """
    try:
        with gzip.open(path) as file:
            check(facts := json.loads(file.read(LARGEST)), SCHEMA)
        runs, sizes = facts.pop("runs"), {key: facts.pop(key) for key in SIZES}
        if git("cat-file", "-e", facts["commit"]).returncode:
            raise ValueError(f"this checkout has no commit {facts['commit']}: git fetch")
        scripts = {Path(name).stem: name for name in facts["scripts"]}
        for name, run in runs.items():
            text = log_text(scripts[name.partition(".")[0]], facts, sizes, run)
            (folder / f"{name}.log").write_text(text)
    except (OSError, EOFError, zlib.error, LookupError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not a file of ladder share, or damaged: {error}") from None
    flags = zip(("batch-size", "seq-len", "steps", "seed"), sizes.values(), strict=True)
    facts["flags"] = [f"--{flag}={value}" for flag, value in flags]
    (folder / "climb.json").write_text(json.dumps(facts, indent=1) + "\n")
    return folder


def log_text(script: str, facts: dict, sizes: dict, run: dict) -> str:
    """The log of one run."""
    header = {"script": script, "commit": facts["commit"], "torch": facts["versions"]["torch"]}
    header |= {"python": facts["versions"]["python"], "device": facts["device"]}
    header |= {"model": "gpt2", "params": run["params"], **sizes, "data": "tinyshakespeare"}
    header |= {"data_sha256": TINYSHAKESPEARE_SHA256[:12]}
    tokens, times = sizes["B"] * sizes["T"], [ms / 1e3 for ms in run["dt"]]
    lines = [pairs_line("run", header)]
    for step, dt in zip(range(sizes["steps"]), times, strict=True):
        more = {key: run[key][step] for key in ("norm", "lr", "loss") if key in run}
        lines.append(step_line(step, sizes["steps"], **more, dt=dt, tok_per_s=tokens / dt))
    lines.insert(3, pairs_line("effective", run["effective"]))  # of the second step
    rates = {key: run.get(key) for key in RATES}
    rest = dict(tokens_per_step=tokens, peak_bytes=run.get("peak_bytes"), **rates)
    end = {"script": script, "status": "ok"}
    end |= result(times, run["loss"], steps=sizes["steps"], **rest)
    mfu = mfu_line(**rates, mfu=end["mfu"])
    return "\n".join([*lines, mfu, "RESULT " + json.dumps(end)]) + "\n"
