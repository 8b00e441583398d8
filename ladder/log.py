"""The log format: functions that write its lines, and its only parser.

A line begins with its name: run, note, step, val, effective, mfu, error or RESULT.
docs/measuring.md explains the keys. Values are read by key, never by column.
"""

import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ladder.errors import UsageError
from ladder.text import printable


def pairs_line(name: str, pairs: dict) -> str:
    """`run   key=value …`; a value with a space or a quote is put in double quotes."""
    words = [f"{key}={_quoted(str(value))}" for key, value in pairs.items()]
    return f"{name:5s} " + " ".join(words)


def _quoted(value: str) -> str:
    value = printable(value)
    if re.fullmatch(r"[^\s\"'\\]+", value):
        return value
    return json.dumps(value, ensure_ascii=False)


def step_line(step: int, steps: int, *, loss, dt, tok_per_s, **more) -> str:
    """One step: `dt` in seconds, `tok_per_s` in tokens per second, `more` values a rung adds."""
    line = f"step {step + 1:4d}/{steps} | loss {loss:.6f} | dt {dt * 1e3:8.2f} ms"
    line += f" | tok/s {tok_per_s:7.0f}"
    for key, value in more.items():
        line += f" | {key} {value:.4e}"
    return line


def result(
    times,
    losses,
    *,
    steps,
    tokens_per_step,
    flops_per_token,
    peak_flops,
    world_size=1,
    peak_bytes=None,
) -> dict:
    """RESULT's numbers. `times` (seconds) and `losses` are those of the steps done so far.

    `steps` is how many the run is to have: a third of them is warm-up, at least 2 (the second step
    is profiled) and at most 10. If the run has one or two, only the last is measured.
    `tokens_per_step` are those of all ranks, `peak_flops` is one device's, in FLOP/s. What is not
    known is None.
    """
    import numpy as np  # not above: commands that only write lines start at once

    ms = [seconds * 1e3 for seconds in times]
    warmup = warmup_of(steps)
    measured = ms[warmup:]
    p10, median, p90 = np.percentile(measured or math.nan, (10, 50, 90)).tolist()
    tok_per_s = tokens_per_step * 1e3 / median
    peak = world_size * (peak_flops or math.nan)
    numbers = {
        "median_ms": round(median, 3),
        "p10_ms": round(p10, 3),
        "p90_ms": round(p90, 3),
        "measured_steps": len(measured),
        "warmup_steps": len(ms) - len(measured),
        "tok_per_s": round(tok_per_s, 1),
        "mfu": round(flops_per_token * tok_per_s / peak, 4),
        "peak_bytes": peak_bytes,
        "first_step_ms": round(ms[0], 3) if ms else None,
        "first_loss": losses[0] if losses else None,
        "final_loss": losses[-1] if losses else None,
    }
    for key, value in numbers.items():
        if isinstance(value, float) and not math.isfinite(value):
            numbers[key] = None
    return numbers


def warmup_of(steps: int) -> int:
    """How many steps of a run of so many are warm-up: the others are measured."""
    return min(10, max(2, steps // 3)) if steps >= 3 else steps - 1


def mfu_line(flops_per_token: int, peak_flops: float | None, mfu: float | None) -> str:
    """The formula and the peak behind RESULT's `mfu`."""
    mfu = "unknown" if mfu is None else f"{mfu:.4f}"
    peak = f"{peak_flops:.4g}" if peak_flops else "unknown"
    return f"mfu   mfu={mfu} formula=6N+12LCT flops_per_token={flops_per_token} peak_flops={peak}"


@dataclass
class Log:
    """One parsed log. Steps carry step, loss, dt_ms, tok_per_s and a rung's own keys."""

    run: dict[str, str] = field(default_factory=dict)
    effective: dict[str, str] = field(default_factory=dict)
    mfu: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: list[dict[str, float]] = field(default_factory=list)
    vals: list[dict[str, float]] = field(default_factory=list)
    result: dict = field(default_factory=dict)

    @property
    def warmup_steps(self) -> int:
        """How many of its steps are warm-up; it has all of them."""
        return warmup_of(len(self.steps))

    @property
    def measured_steps(self) -> int:
        """How many of its steps are measured; it has all of them."""
        return len(self.steps) - self.warmup_steps


def at_least(low: float, read: Callable) -> Callable:
    """A function that reads a number of at least `low`, and raises ValueError for any other."""

    def read_number(text: str):
        number = read(text)
        if not low <= number < HUGE:
            raise ValueError(f"{text} is out of range")
        return number

    return read_number


def read_peak(text: str) -> float | None:
    """The peak of the mfu line in FLOP/s; None if it is unknown. Raises ValueError."""
    return None if text == "unknown" else at_least(1, float)(text)


HUGE = 1e30  # no number of ours is near
COUNT = at_least(1, int)
AMOUNT = at_least(0, float)
# What a line has to have, and what reads it: nothing computed from a stranger's log may fail.
_LINES = {
    "run": dict.fromkeys(("params", "B", "T", "tokens"), COUNT)
    | {"steps": at_least(0, int), "epoch_batches": AMOUNT}
    | dict.fromkeys(("script", "commit", "torch", "python", "device", "model", "data"), str),
    "mfu": {"flops_per_token": COUNT, "peak_flops": read_peak},
    "val": {"step": at_least(0, float), "loss": float, "tokens": AMOUNT},
}


def read_log(path: Path, ended: bool = True) -> Log:
    """Parse one log. Raises UsageError, naming the file, if truncated or not a log of this ladder.

    With `ended` False it may be the log of a run that is under way, or was killed.
    """
    return parse_log(Path(path).read_text(encoding="utf-8", errors="replace"), str(path), ended)


def parse_log(text: str, name: str, ended: bool = True) -> Log:
    """Parse the text of a log, as `read_log` does; errors call it `name`."""
    log = Log()
    not_ours = f"{name} is not a log of this ladder"
    if not ended:
        text = text[: text.rfind("\n") + 1]  # the last line may not be complete
    for number, line in enumerate(text.split("\n"), 1):
        try:
            read_line(log, line)
        except (ValueError, KeyError, RecursionError) as error:
            raise UsageError(f"{not_ours}: line {number}: {line[:60].rstrip()!r}") from error
    if not log.run:
        raise UsageError(f"{not_ours}: it has no run line")
    if ended and not log.result:
        raise UsageError(f"{name} is cut short: it has no RESULT line")
    return log


def read_line(log: Log, line: str):
    """Add what one line says to `log`. Raises ValueError or KeyError if it is not ours."""
    name, _, rest = line.partition(" ")
    if log.result:  # a copy of the screen has a line after RESULT
        if line.endswith(".log"):  # where logs are packed, another one would begin here
            raise ValueError("the name of a log")
        return
    if name in ("run", "effective", "mfu"):
        found = pairs(shlex.split(rest))
        check_values(name, found)
        COUNT(found.get("total_batch", "1"))  # of ddp_run.py
        setattr(log, name, found)
    elif name == "note":
        log.notes.append(rest.strip())
    elif name == "step":
        log.steps.append(read_step(rest))
    elif name == "val":
        values = pairs(rest.split())
        check_values(name, values)
        log.vals.append({key: float(value) for key, value in values.items()})
    elif name == "RESULT" and log.mfu:
        log.result = read_result(rest)
    elif line.strip() and name not in ("error", "sample"):  # older logs of ddp_run.py have that
        raise ValueError(f"unknown line: {name}")


def check_values(name: str, found: dict[str, str]):
    """Raise ValueError or KeyError unless a line of this name has what it has to have."""
    for key, read in _LINES.get(name, {}).items():
        read(found[key])


def read_result(text: str) -> dict:
    """RESULT: its status and its peak memory count, the rest is computed from the steps."""
    found = json.loads(text)
    if not isinstance(found, dict) or type(found["status"]) is not str:
        raise ValueError("no result")
    peak = found["peak_bytes"]
    if peak is not None and not (type(peak) is int and 0 <= peak < HUGE):
        raise ValueError("no number of bytes")
    return found


def pairs(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dict."""
    return dict(word.split("=", 1) for word in words)


def read_step(text: str) -> dict[str, float]:
    """What follows `step`: `20/50 | loss 6.123456 | dt 98.31 ms | tok/s 166657`."""
    position, *fields = text.split("|")
    step = {"step": COUNT(position.partition("/")[0])}
    for field_text in fields:
        key, value, *_unit = field_text.split()
        if key != "left":  # the screen's: the time that is left
            step[key] = float(value)
    step["dt_ms"] = at_least(0.01, float)(step.pop("dt"))
    step["tok_per_s"] = AMOUNT(step.pop("tok/s"))
    step["loss"] = float(step["loss"])
    return step
