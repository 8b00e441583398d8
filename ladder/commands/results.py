"""From the raw logs of a climb to rows that can be compared, with their uncertainty."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from ladder.cli import FLAGS
from ladder.commands.kinds import KINDS, Kind, kind_of
from ladder.commands.limits import limit_of
from ladder.commands.log import Log, read_log
from ladder.errors import BadInput
from ladder.files import regular
from ladder.log import printable, warmup_steps

LOG_NAME = re.compile(r"(?P<stem>.+)\.r(?P<repeat>[1-9]\d{0,3})\.log", flags=re.ASCII)
# What has to be equal in all logs of one table. The commit stands for the shared part.
COMPARABLE = ("commit", "torch", "python", "device", "model", "B", "T", "steps", "seed")
COMPARABLE += ("data", "data_sha256")
CAPTION = ("device", "torch", "model", "B", "T", "steps", "data", "commit")  # of the run line
# The values of climb.json, each as JSON, empty where a key may be missing.
TEXT, WORD = r'"([^"\\]|\\(?!u0000).)*"', r"[\w.:+-]{1,40}"
NAME, AMOUNT = r"[\w .,()@/+-]{1,80}", r"\d{1,16}(\.\d{1,20})?(e[-+]\d{1,3})?"
RATE = r"[1-9]\d{6,17}(\.\d{1,9})?"  # FLOP/s or bytes per second
FACTS = {
    "kind": f'"({"|".join(KINDS)})"',
    "started": r'"\d{4}-\d\d-\d\d \d\d:\d\d"',
    "commit": r'"\w[\w-]{,40}"',
    "repeats": r"[1-9]\d{0,3}",
    **dict.fromkeys(("precision", "at_most", "memory_gib"), f"({AMOUNT}|null)?"),
    **dict.fromkeys(("minutes", "load"), f"({AMOUNT})?"),
    **dict.fromkeys(("quick", "precompile"), "(true|false)?"),
    "flags": rf'\[("--({"|".join(FLAGS).replace("_", "-")})={WORD}"(, )?)*\]',
    "versions": rf'\{{("{WORD}": "{WORD}"(, )?)*\}}',
    "system": r'"[\w .,()/+-]{1,80}"',
    "cores": r"\d{1,5}|null",
    "device": TEXT,
    "clocks": r'\{("(before|after|round \d+)": "([\w .,\[\]/-]|\\n)*"(, )?)*\}',
    **dict.fromkeys(("peak_flops", "fp32_flops", "copy_bytes_per_s"), f"({RATE})?"),
    "peak_dtype": r'("\w{1,20}")?',
    "peaks": rf"(\[({RATE}(, {RATE})*)?\])?",
    "failures": rf'\{{("([^"\\]|\\.)+\.r[1-9]\d{{0,3}}": {TEXT}(, )?)*\}}',
    # Names of files, a letter outside ASCII as \uXXXX; `ladder report` asks git for each.
    "scripts": r'\[("([^"\\]|\\(?!u0000).){1,1000}"(, )?){1,500}\]',
    "sha256": rf'(\{{({TEXT}: "[0-9a-f]{{64}}"(, )?)*\}})?',  # of scripts of one's own
}
# Of `ladder climb` alone: they may hold paths and messages, which are not shared.
OWN_FACTS = {
    "data": f"({TEXT}|null)?",
    "batches": rf"(\{{({TEXT}: ([1-9]\d{{0,8}}|{TEXT})(, )?)*\}})?",
    "free_bytes": r"(\d{1,16})?",
    "code": '("[0-9a-f]{64}")?',
}
# 97.5 % quantile of Student's t for 1, 2, … degrees of freedom; of more it is 1.96 + 2.6 / them.
T_975 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
T_975 += (2.160, 2.145, 2.131, 2.120, 2.110, 2.101)
NOT_YET = "not run yet"  # where another row has why it failed
LARGEST_FACTS, LARGEST_SCRIPT = 1e7, 1e6  # bytes of a climb.json, and of a script beside it
LEAST_ROUNDS = 6  # before the width of an interval is trusted: three can agree by chance


@dataclass
class Gain:
    """How many times faster, and between which bounds with 95 % confidence."""

    ratio: float
    low: float
    high: float
    rounds: int  # that the interval is made from

    @property
    def is_noise(self) -> bool:
        """Whether the interval contains no difference at all."""
        return self.low <= 1 <= self.high

    @property
    def width(self) -> float:
        """Per cent that the interval reaches to either side, whatever the gain is."""
        return ((self.high / self.low) ** 0.5 - 1) * 100


@dataclass
class Row:
    """One script of a climb over all its repeats. Times in milliseconds; None is not known."""

    stem: str
    logs: dict[int, Log]  # by repeat; a climb keeps only those of runs that ended well
    failure: str | None = None
    ms: float | None = None  # geometric mean of the rounds' medians, as the gains are
    p10_ms: float | None = None
    p90_ms: float | None = None
    tok_per_s: float | None = None
    gain: Gain | None = None  # over the row above; `compare` tells of the other kinds of climb
    total: Gain | None = None  # over the first row
    mfu: float | None = None
    limit: tuple[float, ...] | None = None  # its parts in milliseconds, as `limit_ms` has them
    peak_bytes: int | None = None
    own_B: int | None = None  # where the rows differ in it

    @property
    def log(self) -> Log:
        """That of its first round."""
        return self.logs[min(self.logs)]

    @property
    def spread(self) -> tuple[float, float]:
        """The rates at p90 (a tenth of the steps is slower) and at p10, over that of the row."""
        return min(1, self.ms / self.p90_ms), max(1, self.ms / self.p10_ms)

    @property
    def apart(self) -> dict[int, float]:
        """Rounds that took more than twice the median of the row, with their milliseconds."""
        times = {k: float(np.median(step_times(log))) for k, log in sorted(self.logs.items())}
        return {k: ms for k, ms in times.items() if ms > 2 * np.median([*times.values()])}


def read_facts(folder: Path) -> dict:
    """climb.json, empty if there is none. Raises BadInput if it is not one of ours, if a log or
    script beside it is no regular file or too large, or anything there is a link."""
    for path in folder.glob("*"):
        ours = path.suffix in (".json", ".log", ".py")
        climbed = (folder / "climb.json").exists()  # there a linked cache would be emptied
        if (path.is_symlink() and (ours or climbed)) or (ours and not path.is_file()):
            raise BadInput(f"{path} is not a regular file: remove it")
        if path.suffix == ".py":
            regular(path, LARGEST_SCRIPT)
    path = folder / "climb.json"
    if not path.exists():
        return {}
    try:
        facts = json.loads(regular(path, LARGEST_FACTS).read_text(encoding="utf-8"))
        os.fsencode(json.dumps(facts, ensure_ascii=False))  # names of files, for git
        for key, form in (OWN_FACTS | FACTS).items():
            text = json.dumps(facts[key]) if key in facts else ""
            if not re.fullmatch(form, text, flags=re.ASCII):
                why = f"{key}={facts.get(key)!r:.80} is not as ladder climb writes it"
                raise BadInput(f"{path}: {why}")
        datetime.strptime(facts["started"], "%Y-%m-%d %H:%M")
    except (AttributeError, OSError, TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not a climb.json of this ladder: {error}") from error
    if len({Path(name).stem for name in facts["scripts"]}) < len(facts["scripts"]):
        raise BadInput(f"{path}: a script is there twice")
    if facts.get("copy_bytes_per_s") and not (facts.get("fp32_flops") and facts.get("peak_flops")):
        raise BadInput(f"{path}: a matmul's rate is missing")
    return facts


def read_run(path: Path) -> Log:
    """The log of one run that ended well. Raises BadInput if it is none, lacks what a table or the
    page is made from, or contradicts itself."""
    log = read_log(path)
    try:
        why = next(contradictions(log), "")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"{error!r:.200}"
    if why:
        raise BadInput(f"{path} cannot stand in a table: {why}")
    return log


def contradictions(log: Log) -> Iterator[str]:
    """What is wrong with a log; raises an error like KeyError where something is missing."""
    run, result, peak, count = log.run, log.result, log.mfu["peak_flops"], len(log.steps)
    # These bounds also keep all that is computed from the numbers finite; NaN is in none.
    numbers = [*step_times(log), step_tokens(log), int(run["B"]), int(run["T"])]
    numbers += [result["first_step_ms"], result["tok_per_s"] or 0]
    large = [int(log.mfu["flops_per_token"]), result["peak_bytes"] or 1]
    large += [1 if peak == "unknown" else float(peak)]
    good = all(1e-6 < x < 1e9 for x in numbers) and all(1e-6 < x < 1e30 for x in large)
    good = good and all(abs(step[k]) < 1e9 for step in log.steps for k in ("loss", "dt"))
    exact = [run[key] for key in ("B", "T", "seed")]
    good = good and all(text == str(int(text)) for text in exact)
    good = good and (result["peak_bytes"] or 0) < 1e15 and result["peak_bytes"] is not True
    if not good or not all(run[key] for key in ("script", *CAPTION)):
        yield "a number in it makes no sense"
    if not "".join(run.values()).isprintable():
        yield "its run line has control characters"
    if result["status"] != "ok":
        yield f"its run ended {result['status']!r:.40}"
    found = [step["step"] for step in log.steps]
    if str(count) != run["steps"] or found != [*range(1, count + 1)]:
        yield f"its steps are not 1 to {run['steps']:.40}"
    warmup = warmup_steps(count)
    if (result["warmup_steps"], result["measured_steps"]) != (warmup, count - warmup):
        yield "its warm-up is not as ladder/run.py has it"
    if abs(result["first_step_ms"] - log.steps[0]["dt"] * 1e3) > 0.01:
        yield "its first step took another time than RESULT says"
    for key, step in (("first_loss", log.steps[0]), ("final_loss", log.steps[-1])):
        if f"{result[key]:.6f}" != f"{step['loss']:.6f}":
            yield "the losses of RESULT are not those of its steps"


def read_climb(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json (empty if there is none) and one Row a script, in the order of the climb.

    Raises BadInput if a log is not ours, or if logs cannot stand in one table.
    """
    facts = read_facts(folder)
    logs: dict[str, dict[int, Log]] = {}
    for path in sorted(folder.glob("*.log")):
        if not (match := LOG_NAME.fullmatch(path.name)):
            raise BadInput(f"{path} is not a log of a climb: expected a name like 02_tf32.r1.log")
        logs.setdefault(match["stem"], {})[int(match["repeat"])] = read_run(path)
    failures = facts.get("failures", {}).items()
    failures = {name.rpartition(".")[0]: printable(why, keep="\n") for name, why in failures}
    if not logs and not failures:
        raise BadInput(f"{folder} holds no logs of a climb")
    all_logs = [log for repeats in logs.values() for log in repeats.values()]
    check_comparable(folder, all_logs, kind_of(facts))
    for stem, runs in logs.items():
        if len(Bs := {f"B={log.run['B']}" for log in runs.values()}) > 1:
            raise BadInput(f"{folder}: the logs of {stem} differ: {' and '.join(sorted(Bs))}")
    order = [Path(name).stem for name in facts.get("scripts", [])]
    order += sorted(logs.keys() - set(order), key=lambda stem: (stem != "baseline", stem))
    rows = [make_row(stem, logs.get(stem, {}), failures.get(stem), facts) for stem in order]
    compare(rows, kind_of(facts))
    return facts, rows


def check_comparable(folder: Path | str, logs: list[Log], kind: Kind) -> None:
    """Raise BadInput unless all logs come from one machine, commit, corpus and size of step, or
    from one of any B where `kind` has it so."""
    for key in (key for key in COMPARABLE if key != "B" or not kind.own_batch):
        values = sorted({str(log.run.get(key)) for log in logs})
        if len(values) > 1:
            found = f"{key} ({', '.join(values)})"
            raise BadInput(f"{folder}: its logs differ in {found}: they cannot stand in one table")


def compare(rows: list[Row], kind: Kind) -> None:
    """Fill in the gains: `total` over the first row, `gain` as this kind of climb has it."""
    for above, row in pairwise(rows):
        row.total = row.gain = gain(rows[0], row)
        if kind.gain_of_first:
            row.gain = gain(row, rows[0])
        elif kind.against == "above":
            row.gain = gain(above, row)


def make_row(stem: str, logs: dict[int, Log], failure: str | None, facts: dict) -> Row:
    """The numbers of one script that need no other. A failure counts where no run ended well."""
    row = Row(stem, logs)
    if not logs:
        row.failure = failure or NOT_YET
        return row
    times = [step_times(log) for log in logs.values()]
    row.ms = float(np.exp(np.mean([np.log(np.median(run)) for run in times])))
    row.p10_ms, row.p90_ms = map(float, np.percentile(np.concatenate(times), (10, 90)))
    row.tok_per_s = step_tokens(row.log) / row.ms * 1e3
    limit = limit_tok_per_s(facts, [row])
    row.mfu = row.tok_per_s / limit if limit else None
    row.limit = limit_of(stem, row.log.run, facts)
    # Not the most of them: in the first round the compiler needs more than training does.
    peaks = [log.result["peak_bytes"] or 0 for log in logs.values()]
    row.peak_bytes = int(np.median(peaks)) or None
    row.own_B = int(row.log.run["B"]) if kind_of(facts).own_batch else None
    return row


def limit_tok_per_s(facts: dict, rows: list[Row]) -> float | None:
    """Tokens per second if every FLOP of the formula ran at the peak; None if that is unknown.

    The peak is that of the GPU's data sheet, or else the rate of a matmul: in half precision, the
    rounds' median, or in FP32 on a CPU that multiplies that faster.
    """
    mfu = rows[-1].log.mfu
    listed = mfu["peak_flops"]
    measured = max(facts.get(key) or 0 for key in ("peak_flops", "fp32_flops"))
    peak = measured if listed == "unknown" else float(listed)
    return peak / int(mfu["flops_per_token"]) if peak else None


def limit_name(rows: list[Row]) -> str:
    """What limit_tok_per_s stands for, in words: a published peak or one measured here."""
    listed = rows[-1].log.mfu["peak_flops"] != "unknown"
    return "all FLOPs at the data sheet's peak" if listed else "all FLOPs at a matmul's rate here"


def first_log(rows: list[Row]) -> Log:
    """One log of a climb: its run line is that of all of them, but for the script."""
    return next(row.log for row in rows if row.logs)


def step_times(log: Log) -> np.ndarray:
    """Milliseconds of the measured steps, without the warm-up."""
    return np.array([step["dt"] * 1e3 for step in log.steps[log.result["warmup_steps"] :]])


def step_tokens(log: Log) -> int:
    """Tokens that one step trains on; ddp_run.py takes several batches of B·T for it."""
    return int(log.run.get("total_batch") or int(log.run["B"]) * int(log.run["T"]))


def gain(before: Row, after: Row) -> Gain | None:
    """How many times faster per token `after` is, with its 95 % interval; None for one round.

    Round k of one script is paired with round k of the other, which ran next to it: one log ratio
    of their medians. The gain is the mean of these, its interval Student's with n - 1 degrees of
    freedom. What steps vary by inside a run is in the spread of the rounds already.
    """
    if len(rounds := sorted(before.logs.keys() & after.logs.keys())) < 2:
        return None
    medians = [
        [np.median(step_times(r.logs[k])) / step_tokens(r.logs[k]) for k in rounds]
        for r in (before, after)
    ]
    return interval(np.log(medians[0]) - np.log(medians[1]))


def interval(ratios: np.ndarray) -> Gain:
    """The gain of two or more rounds from their log ratios."""
    n = len(ratios)
    t = T_975[n - 2] if n - 2 < len(T_975) else 1.96 + 2.6 / (n - 1)
    centre, half = ratios.mean(), t * ratios.std(ddof=1) / np.sqrt(n)
    return Gain(*(float(np.exp(x)) for x in (centre, centre - half, centre + half)), n)


def not_there(rows: list[Row], precision: float) -> list[Row]:
    """Rows whose interval is not narrower than ± `precision` per cent over enough rounds yet.

    Widths decide, never a gain: rounds that went on until one looks good would make it look so.
    """
    return [
        row
        for row in rows
        if row.gain and (row.gain.rounds < LEAST_ROUNDS or row.gain.width >= precision)
    ]
