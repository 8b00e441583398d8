"""From the raw logs of a climb to rows that can be compared, with their uncertainty."""

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.log import Log, read_log

LOG_NAME = re.compile(r"(?P<stem>.+)\.r(?P<repeat>\d+)\.log")
# What has to be equal in all logs of one table. The commit stands for the shared part.
COMPARABLE = ("commit", "torch", "python", "device", "model", "B", "T", "steps", "seed")
COMPARABLE += ("data", "data_sha256")
# 97.5 % quantile of Student's t for 1, 2, … degrees of freedom; later ones are below 2.1.
T_975 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
T_975 += (2.160, 2.145, 2.131, 2.120, 2.110, 2.101)
DRAWS = 2000


@dataclass
class Gain:
    """How many times faster, and between which bounds with 95 % confidence."""

    ratio: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether the data do not tell it from no difference at all."""
        return self.low <= 1 <= self.high


@dataclass
class Row:
    """One script of a climb over all its repeats. Times in milliseconds; None is not known."""

    stem: str
    logs: dict[int, Log]  # by repeat, only those that ended well
    failure: str | None = None
    median_ms: float | None = None
    p10_ms: float | None = None
    p90_ms: float | None = None
    tok_per_s: float | None = None
    gain: Gain | None = None  # over the row before
    total: Gain | None = None  # over the first row
    mfu: float | None = None
    peak_bytes: int | None = None
    first_step_ms: float | None = None
    final_loss: float | None = None


def read_climb(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json (empty if there is none) and one Row a script, in order of the scripts.

    Raises BadInput if a log is not ours, or if logs cannot stand in one table.
    """
    facts = folder / "climb.json"
    climb = json.loads(facts.read_text(encoding="utf-8")) if facts.exists() else {}
    logs: dict[str, dict[int, Log]] = {}
    for path in sorted(folder.glob("*.log")):
        if not (match := LOG_NAME.fullmatch(path.name)):
            raise BadInput(f"{path} is not a log of a climb: expected a name like 02_tf32.r1.log")
        logs.setdefault(match["stem"], {})[int(match["repeat"])] = read_log(path)
    if not logs:
        raise BadInput(f"{folder} holds no logs of a climb")
    check_comparable(folder, [log for repeats in logs.values() for log in repeats.values()])
    stems = sorted(logs, key=lambda stem: (stem != "baseline", stem))
    return climb, make_rows({stem: logs[stem] for stem in stems}, climb.get("peak_flops"))


def check_comparable(folder: Path, logs: list[Log]) -> None:
    """Raise BadInput unless all logs come from one machine, commit, corpus and size of step."""
    for key in COMPARABLE:
        values = {log.run.get(key) for log in logs}
        if len(values) > 1:
            raise BadInput(
                f"{folder}: its logs differ in {key} ({', '.join(sorted(map(str, values)))}): "
                "they cannot stand in one table"
            )


def make_rows(logs: dict[str, dict[int, Log]], peak_flops: float | None) -> list[Row]:
    """One Row for each script; gains are taken between neighbours that both ended well."""
    rows = [make_row(stem, repeats, peak_flops) for stem, repeats in logs.items()]
    good = [row for row in rows if row.failure is None]
    for before, row in pairwise(good):
        row.gain, row.total = gain(before, row), gain(good[0], row)
    return rows


def make_row(stem: str, repeats: dict[int, Log], peak_flops: float | None) -> Row:
    """The numbers of one script that need no other."""
    good = {n: log for n, log in repeats.items() if log.result["status"] == "ok"}
    row = Row(stem, good)
    if not good:
        last = list(repeats.values())[-1]
        row.failure = last.errors[-1] if last.errors else last.result["status"]
        return row
    pooled = np.concatenate([step_times(log) for log in good.values()])
    log = good[min(good)]
    tokens = int(log.run["B"]) * int(log.run["T"])
    row.median_ms = float(np.median([np.median(step_times(log)) for log in good.values()]))
    row.p10_ms, row.p90_ms = (float(np.percentile(pooled, p)) for p in (10, 90))
    row.tok_per_s = tokens / row.median_ms * 1e3
    # A known GPU's own peak is in its logs; elsewhere it is the rate measured in this climb.
    listed = log.mfu["peak_flops"]
    peak = peak_flops if listed == "unknown" else float(listed)
    row.mfu = int(log.mfu["flops_per_token"]) * row.tok_per_s / peak if peak else None
    row.peak_bytes = max((log.result["peak_bytes"] or 0) for log in good.values()) or None
    row.first_step_ms = log.result["first_step_ms"]
    row.final_loss = log.result["final_loss"]
    return row


def step_times(log: Log) -> np.ndarray:
    """Milliseconds of the measured steps, without the warm-up."""
    return np.array([step["dt"] * 1e3 for step in log.steps[log.result["warmup_steps"] :]])


def gain(before: Row, after: Row) -> Gain | None:
    """Median of the paired ratios of step time, with its 95 % interval; None for one repeat.

    Repeat k of one script is paired with repeat k of the other, which ran next to it. The
    interval is a bootstrap over repeats and over the steps in them. Few repeats make it too
    narrow: three of three agree by chance one time in four. So its half-widths are stretched by
    sqrt(n / (n - 1)) and by Student's t over the normal quantile, as for a mean of n values.
    """
    pairs = sorted(before.logs.keys() & after.logs.keys())
    n = len(pairs)
    if n < 2:
        return None
    random = np.random.default_rng(0)

    def medians(log):
        """Of the steps themselves, then of DRAWS resamplings of them: (1 + DRAWS,)."""
        times = step_times(log)
        drawn = times[random.integers(0, len(times), (DRAWS, len(times)))]
        return np.concatenate([[np.median(times)], np.median(drawn, axis=1)])

    ratios = np.array([medians(before.logs[k]) / medians(after.logs[k]) for k in pairs])
    centre = np.log(np.median(ratios[:, 0]))
    chosen = random.integers(0, n, (DRAWS, n))
    resampled = np.median(ratios[chosen, 1 + np.arange(DRAWS)[:, None]], axis=1)
    low, high = np.percentile(np.log(resampled), [2.5, 97.5])
    t = T_975[n - 2] if n - 2 < len(T_975) else 2.1
    stretch = np.sqrt(n / (n - 1)) * t / 1.96
    low, high = centre - stretch * (centre - low), centre + stretch * (high - centre)
    return Gain(float(np.exp(centre)), float(np.exp(low)), float(np.exp(high)))
