"""From the raw logs of a climb to rows that can be compared, with their uncertainty."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ladder.errors import UsageError
from ladder.log import Log, parse_log
from ladder.measure.folder import OUT_OF_MEMORY, Climb, stem_of
from ladder.measure.losses import MIN_STEPS, end_loss, steps_to
from ladder.measure.notes import title_of
from ladder.measure.scripts import bases
from ladder.measure.stats import Estimate, gain_of, holm, mean_of
from ladder.measure.work import roofline_of

# What has to be equal in all logs of one table, as the seed has to be in each round. The commit
# covers the code that scripts share.
COMPARABLE = (
    "commit",
    "torch",
    "python",
    "device",
    "model",
    "B",
    "T",
    "steps",
    "data",
    "data_sha256",
)
COMPARED = ("gain", "total", "loss_change", "time_to_loss")  # the estimates of a row
# Row.status, beside OUT_OF_MEMORY:
OK = "ok"
FAILED = "failed"
NOT_RUN = "not run"  # yet, or before the time was over


@dataclass
class Row:
    """One script of a climb over all its rounds, or of a comparison of batch sizes at one B.

    Times are in milliseconds. None: not known.
    """

    name: str  # the script's stem; where batch sizes are compared, its B too
    logs: dict[int, Log]  # by round; a climb keeps only those of runs that ended well
    failures: dict[int, str] = field(default_factory=dict)  # why, by round
    status: str = OK  # or why it has no logs, in two or three words
    B: int | None = None  # only where batch sizes are compared
    ms: float | None = None  # geometric mean of the rounds' medians, as the gains are
    tok_per_s: float | None = None
    base: "Row | None" = None  # the row that its kind of climb compares it with
    gain: Estimate | None = None  # over that
    total: Estimate | None = None  # over the first row
    loss: float | None = None  # at the end; only of enough steps, like the two below
    loss_change: Estimate | None = None  # from `base`
    time_to_loss: Estimate | None = None  # None too if a round never came down to it
    mfu: float | None = None
    roofline: list | None = None  # milliseconds of each of work.PARTS
    peak_bytes: int | None = None

    @property
    def stem(self) -> str:
        """That of the script."""
        return self.name.removesuffix(f"_B{self.B}")

    @property
    def title(self) -> str:
        """That of the script; where batch sizes are compared, its B too."""
        return title_of(self.stem) + (f", B={self.B}" if self.B else "")

    @property
    def log(self) -> Log:
        """The log of its first round."""
        return self.logs[min(self.logs)]


class Results(NamedTuple):
    """What a climb found: climb.json, and a row for each of its runs, in that order."""

    climb: Climb
    rows: list[Row]

    @property
    def ran(self) -> list[Row]:
        """The rows with logs."""
        return [row for row in self.rows if row.logs]

    @property
    def log(self) -> Log:
        """One log: the run line is that of all of them, but for the script."""
        return self.ran[0].log

    @property
    def rounds_begun(self) -> int:
        """The last round of which a run is in."""
        return max(k for row in self.rows for k in [*row.logs, *row.failures])


def read_climb(folder: Path) -> Results:
    """The results so far of the climb in a folder.

    Raises UsageError if a log is not ours or cut short, or if logs cannot stand in one table.
    """
    climb = Climb.read_from(folder)
    logs, failures, too_large = climb.logs(), climb.failures(), climb.too_large()
    rows = []
    for run in climb.runs:
        row = Row(run.name, {}, failures[run.name], B=run.B)
        for k, text in logs[run.name].items():
            row.logs[k] = whole_log(text, f"{folder}/{stem_of(run.name, k)}.log")
        # Else it was skipped, as a smaller B did not fit.
        if row.logs or row.failures or run.name not in too_large:
            rows.append(row)
    if not any(row.logs or row.failures for row in rows):
        raise UsageError(f"{folder} holds no logs of a climb")
    if not climb.rate("peak_flops"):
        raise UsageError(f"{folder}/climb.json lacks the rate of a large matmul, peak_flops")
    check_comparable(climb, [row.logs for row in rows])
    for row in rows:
        set_numbers(row, climb)
    set_gains(climb.comparison.against, rows)
    return Results(climb, rows)


def whole_log(text: str, where: str) -> Log:
    """Parse a log. Raises UsageError unless its run ended well and it has all steps, from 1 on."""
    log = parse_log(text, where)
    status = log.result.get("status")
    if status != "ok":
        raise UsageError(f"{where}: its run ended {status}")
    steps = log.run["steps"]
    if not steps or [step.step for step in log.steps] != [*range(1, steps + 1)]:
        raise UsageError(f"{where} does not have the steps 1 to {steps}")
    if not all(math.isfinite(step.loss) for step in log.steps):
        raise UsageError(f"{where} has a loss that is not finite")
    return log


def check_comparable(climb: Climb, logs: list[dict[int, Log]]):
    """Raise UsageError unless all logs, by row and round, come from one machine, commit, corpus and
    size of step, and those of a round from one seed and order of rows.

    climb.json may name several commits, whose losses were joined, and batch sizes.
    """
    several = {"B": {str(B) for B in climb.batch_sizes}, "commit": {*climb.commits}}
    found = defaultdict(set)
    for row in logs:
        for k, log in row.items():
            for key in COMPARABLE:
                found[key].add(str(log.run.get(key)))
            for key in ("seed", "shuffle"):
                found[f"{key} of round {k}"].add(str(log.run.get(key)))
    for key, values in found.items():
        if len(values) > 1 and not values <= several.get(key, set()):
            raise UsageError(
                f"{climb.folder}: its logs differ in {key} ({', '.join(sorted(values))}): they "
                "make no table"
            )


def set_numbers(row: Row, climb: Climb):
    """Set the row's status and the numbers that need no other row."""
    if not row.logs:
        row.status = FAILED if row.failures else NOT_RUN
        if OUT_OF_MEMORY in row.failures.values():
            row.status = OUT_OF_MEMORY
        return
    logs = row.logs.values()
    row.ms = statistics.geometric_mean(log.median_ms for log in logs)
    row.tok_per_s = row.log.step_tokens * 1e3 / row.ms
    row.mfu = row.tok_per_s / limit_tok_per_s(climb, row.log)
    row.roofline = roofline_of(row.stem, row.log.run, climb)
    # Not the most of them: in the first round the compiler needs more than training does.
    peaks = [log.result["peak_bytes"] or 0 for log in logs]
    row.peak_bytes = int(statistics.median(peaks)) or None
    if climb.comparison.loss_heading and len(row.log.steps) >= MIN_STEPS:
        row.loss = statistics.mean(map(end_loss, logs))


def set_gains(against: str, rows: list[Row]):
    """Compare each row with the one that its kind of climb says (`Comparison.against`), and with
    the first."""
    if not against:
        return
    first = rows[0]
    for index, row in enumerate(rows[1:], 1):
        row.base = first
        if against == "previous":
            row.base = base_row(row, rows[:index])
        old, new = row.base, row
        if against == "top":
            old, new = row, first
        row.gain = compared(old, new, ln_gain, gain_of)
        row.total = compared(first, row, ln_gain, gain_of)
        if row.loss is not None:
            row.loss_change = compared(old, new, loss_change, mean_of)
            row.time_to_loss = compared(first, row, ln_time_to_loss, gain_of)
    for name in COMPARED:
        holm(getattr(row, name) for row in rows)


def base_row(row: Row, above: list[Row]) -> Row:
    """The row of the script that this row's script is built on, if it is above; else the last."""
    base = base_by_stem().get(row.stem)
    for other in above:
        if other.stem == base:
            return other
    return above[-1]


def base_by_stem() -> dict[str, str]:
    """`bases`, by stems."""
    return {path.stem: base.stem for path, base in bases().items()}


def compared(old: Row, new: Row, number: Callable, estimate: Callable) -> Estimate | None:
    """The `estimate` of one `number` a round, which is made of the two rows' logs of that round.

    None without a round that both rows have, and if a number is infinite: a mean of the others only
    would flatter `new`.
    """
    rounds = sorted(old.logs.keys() & new.logs.keys())
    numbers = [number(old.logs[k], new.logs[k]) for k in rounds]
    if not numbers or math.inf in numbers:
        return None
    return estimate(numbers)


def ln_gain(before: Log, after: Log) -> float:
    """How many times faster per token `after` is, as a logarithm.

    Medians only: the spread of the rounds already contains that of the steps.
    """
    return math.log(before.ms_per_token / after.ms_per_token)


def loss_change(before: Log, after: Log) -> float:
    """How much higher the loss of `after` ends."""
    return end_loss(after) - end_loss(before)


def ln_steps_to_loss(first: Log, log: Log) -> float:
    """The steps that a run takes to the final loss of `first`, over those that `first` itself
    takes, as a logarithm.

    They are counted to where the running mean stays that low; inf if it ends above.
    """
    loss = end_loss(first)
    return math.log(steps_to(loss, log) / steps_to(loss, first))


def ln_time_to_loss(first: Log, log: Log) -> float:
    """As `ln_steps_to_loss`, in time."""
    return ln_steps_to_loss(first, log) + math.log(log.median_ms / first.median_ms)


def limit_tok_per_s(climb: Climb, log: Log) -> float:
    """Tokens per second at 100 % MFU.

    The peak is that of the GPU's data sheet, else the rate of a large matmul.
    """
    if log.mfu["peak_flops"] == "unknown":
        peak = climb.matmul_flops
    else:
        peak = float(log.mfu["peak_flops"])
    return peak / log.mfu["flops_per_token"]
