"""From the raw logs of a climb to rows that can be compared, with their uncertainty."""

import json
import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.measure.kinds import KINDS, kind_of
from ladder.measure.parser import Log, read_log
from ladder.measure.scripts import chain, number_of
from ladder.measure.work import roofline_of

# What has to be equal in all logs of one table. The commit stands for the shared part.
COMPARABLE = ("commit", "torch", "python", "device", "model", "B", "T", "steps", "seed")
COMPARABLE += ("data", "data_sha256")
NOT_YET = "not run yet"  # where another row has why it failed
WHY_NOT_COMPILED = "is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?"
OUT_OF_MEMORY = "out of memory"  # why a run of a batch failed: a result


@dataclass
class Gain:
    """How many times faster, and between which bounds with 95 % confidence.

    Below three rounds there are no bounds: they are None.
    """

    ratio: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.low is not None and not self.low <= 1 <= self.high


@dataclass
class Row:
    """One script of a climb over all its rounds, or of a batch at one B. Times in milliseconds;
    None is not known."""

    stem: str  # of the script, and of a batch its B too
    logs: dict[int, Log]  # by round; a climb keeps only those of runs that ended well
    failure: str | None = None
    script: str = ""  # its stem
    B: int | None = None  # of a batch
    ms: float | None = None  # geometric mean of the rounds' medians, as the gains are
    p10_ms: float | None = None
    p90_ms: float | None = None
    tok_per_s: float | None = None
    gain: Gain | None = None  # vs. the row before, or as its kind of climb has it
    total: Gain | None = None  # vs. the first row
    mfu: float | None = None
    roofline: tuple[float, ...] | None = None  # milliseconds of each of work.PARTS
    peak_bytes: int | None = None

    def __post_init__(self):
        self.script = self.script or self.stem

    @property
    def log(self) -> Log:
        """That of its first round."""
        return self.logs[min(self.logs)]

    @property
    def spread(self) -> tuple[float, float]:
        """The rates at p90 (a tenth of the steps is slower) and at p10, over that of the row."""
        return min(1, self.ms / self.p90_ms), max(1, self.ms / self.p10_ms)

    @property
    def slow_rounds(self) -> dict[int, float]:
        """Rounds that took more than twice the median of the row, with their milliseconds."""
        times = {k: float(np.median(step_times(log))) for k, log in sorted(self.logs.items())}
        return {k: ms for k, ms in times.items() if ms > 2 * np.median([*times.values()])}


def read_facts(folder: Path) -> dict:
    """climb.json. Raises BadInput if there is none, or it is of no kind that is known."""
    if not (path := folder / "climb.json").is_file():
        raise BadInput(f"{folder} is not a climb's: it has no climb.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    if (kind := facts.get("kind")) not in KINDS:
        raise BadInput(f"{path} is not a climb.json of this ladder: its kind is {kind}")
    return facts


def runs_of(facts: dict) -> list[list[str]]:
    """What is run in a round, in order: a name, the script and flags of its own."""
    return facts.get("runs") or [[Path(name).stem, name] for name in facts["scripts"]]


def read_climb(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json and a Row for each of runs_of, in that order.

    Raises BadInput if a log is not ours or cut short, or if logs cannot stand in one table.
    """
    facts, logs = read_facts(folder), {}
    for path in folder.glob("*.r*.log"):
        stem, _, k = path.stem.rpartition(".r")
        logs.setdefault(stem, {})[int(k)] = read_log(path)
    failures = {name.rpartition(".")[0]: why for name, why in facts.get("failures", {}).items()}
    if not logs and not failures:
        raise BadInput(f"{folder} holds no logs of a climb")
    check_comparable(folder, [log for rounds in logs.values() for log in rounds.values()], facts)
    rows, full = [], set()
    for stem, script, *flags in runs_of(facts):
        row = Row(stem, logs.get(stem, {}), failures.get(stem), Path(script).stem)
        row.B = int(flags[0].partition("=")[2]) if flags else None
        if row.logs or row.script not in full:  # else a smaller B was more than memory holds
            rows.append(measure(row, facts))
        if row.failure == OUT_OF_MEMORY:
            full.add(row.script)
    kind = kind_of(facts)
    for above, row in pairwise(rows):
        row.total = row.gain = gain(rows[0], row)
        if kind.against == "first":
            row.gain = gain(row, rows[0])
        elif kind.against == "above" or kind.varied:
            row.gain = gain(above, row) if above.B == row.B else None
    return facts, rows


def check_comparable(folder: Path | str, logs: list[Log], facts: dict) -> None:
    """Raise BadInput unless all logs come from one machine, commit, corpus and size of step."""
    for key in COMPARABLE:
        values = sorted({str(log.run.get(key)) for log in logs})
        if len(values) > 1 and key != kind_of(facts).varied:
            found = f"{key} ({', '.join(values)})"
            raise BadInput(f"{folder}: its logs differ in {found}: they cannot stand in one table")


def measure(row: Row, facts: dict) -> Row:
    """`row` with the numbers that need no other. A failure counts where no run ended well."""
    row.failure = None if row.logs else row.failure or NOT_YET
    if row.failure:
        return row
    times = [step_times(log) for log in row.logs.values()]
    row.ms = float(np.exp(np.mean([np.log(np.median(run)) for run in times])))
    row.p10_ms, row.p90_ms = map(float, np.percentile(np.concatenate(times), (10, 90)))
    row.tok_per_s = step_tokens(row.log) / row.ms * 1e3
    limit = limit_tok_per_s(facts, row.log)
    row.mfu = row.tok_per_s / limit if limit else None
    row.roofline = roofline_of(row.script, row.log.run, facts)
    # Not the most of them: in the first round the compiler needs more than training does.
    peaks = [log.result["peak_bytes"] or 0 for log in row.logs.values()]
    row.peak_bytes = int(np.median(peaks)) or None
    return row


def gain(before: Row, after: Row) -> Gain | None:
    """How many times faster per token `after` is, with its 95 % interval; None without a round.

    Round k of one script is paired with round k of the other, which ran next to it: one log ratio
    of their medians. The gain is the mean of these, its interval Student's with n - 1 degrees of
    freedom. What steps vary by inside a run is in the spread of the rounds already.
    """
    rounds = sorted(before.logs.keys() & after.logs.keys())
    medians = [
        [np.median(step_times(r.logs[k])) / step_tokens(r.logs[k]) for k in rounds]
        for r in (before, after)
    ]
    return interval(np.log(medians[0]) - np.log(medians[1])) if rounds else None


def interval(ratios: np.ndarray) -> Gain:
    """The gain from the log ratio of each round."""
    n, centre = len(ratios), float(ratios.mean())
    if n < 3:
        return Gain(math.exp(centre), None, None, n)
    half = student(n - 1) * float(ratios.std(ddof=1)) / math.sqrt(n)
    return Gain(math.exp(centre), math.exp(centre - half), math.exp(centre + half), n)


@cache
def student(degrees: int) -> float:
    """97.5 % quantile of Student's t with so many degrees of freedom, two or more.

    With t = tan(angle)·√degrees its density is that of cos(angle)^(degrees - 1), which is summed.
    """
    (_, *ends), step = np.linspace(0, np.pi / 2, 100_001, retstep=True)
    below = np.cumsum(np.cos(np.array(ends) - step / 2) ** (degrees - 1))
    return math.sqrt(degrees) * math.tan(np.interp(0.95 * below[-1], below, ends))


def limit_tok_per_s(facts: dict, log: Log) -> float | None:
    """Tokens per second at 100 % MFU; None if the peak is unknown.

    The peak is that of the GPU's data sheet, else the rate of a matmul: in half precision, or in
    FP32 on a CPU that multiplies that faster.
    """
    measured = max(facts.get(key) or 0 for key in ("peak_flops", "fp32_flops"))
    peak = measured if log.mfu["peak_flops"] == "unknown" else float(log.mfu["peak_flops"])
    return peak / int(log.mfu["flops_per_token"]) if peak else None


def first_log(rows: list[Row]) -> Log:
    """One log of a climb: its run line is that of all of them, but for the script."""
    return next(row.log for row in rows if row.logs)


def step_times(log: Log) -> np.ndarray:
    """Milliseconds of the measured steps, without the warm-up."""
    return np.array([step["dt"] * 1e3 for step in log.steps[log.result["warmup_steps"] :]])


def step_tokens(log: Log) -> int:
    """Tokens that one step trains on; ddp_run.py takes several batches of B·T for it."""
    return int(log.run.get("total_batch") or int(log.run["B"]) * int(log.run["T"]))


def not_compiled(row: Row) -> bool:
    """Whether a rung that calls torch.compile, from 05 on, has a log that says `compiled=no`."""
    eager = any(log.effective.get("compiled") == "no" for log in row.logs.values())
    return eager and row.script in [path.stem for path in chain() if number_of(path) >= 5]
