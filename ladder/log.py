"""The log format: functions that write its lines, and its only parser.

A line begins with its name: run, note, step, val, effective, mfu, error or RESULT.
docs/measuring.md explains the keys. Values are read by key, never by column.
"""

import json
import math
import re
import shlex
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


# What a line has to have: in numbers, and as text.
NUMBERS = {
    "run": ("params", "B", "T", "steps", "tokens", "epoch_batches"),
    "mfu": ("flops_per_token",),
}
TEXTS = {
    "run": {"script", "commit", "torch", "python", "device", "model", "data"},
    "mfu": {"peak_flops"},
}


def read_log(path: Path, ended: bool = True) -> Log:
    """Parse one log. Raises UsageError, naming the file, if truncated or not a log of this ladder.

    With `ended` False it may be the log of a run that is under way, or was killed.
    """
    return parse_log(Path(path).read_text(encoding="utf-8", errors="replace"), str(path), ended)


def parse_log(text: str, name: str, ended: bool = True) -> Log:
    """Parse the text of a log, as `read_log` does; errors call it `name`."""
    log = Log()
    lines = text.split("\n")
    if not ended:
        lines.pop()  # it may not be complete
    for number, line in enumerate(lines, 1):
        try:
            read_line(log, line)
        except (ValueError, KeyError, TypeError, RecursionError):
            where = f"line {number}: {line[:60].rstrip()!r}"
            raise UsageError(f"{name} is not a log of this ladder: {where}") from None
    if not log.run:
        raise UsageError(f"{name} is not a log of this ladder: it has no run line")
    if ended and not log.result:
        raise UsageError(f"{name} is cut short: it has no RESULT line")
    return log


def read_line(log: Log, line: str):
    """Add what one line says to `log`. Raises ValueError, KeyError or TypeError if it is not ours.

    What follows RESULT, as in a copy of the screen, is not read.
    """
    name, _, rest = line.partition(" ")
    if log.result or name in ("", "error"):
        return
    if name in ("run", "effective", "mfu"):
        found = pairs(shlex.split(rest))
        for key in NUMBERS.get(name, ()):
            float(found[key])
        if not found.keys() >= TEXTS.get(name, set()):
            raise ValueError("a value is missing")
        setattr(log, name, found)
    elif name == "note":
        log.notes.append(rest.strip())
    elif name == "step":
        log.steps.append(read_step(rest))
    elif name == "val":
        values = {key: float(value) for key, value in pairs(rest.split()).items()}
        if not values.keys() >= {"step", "loss", "tokens"}:
            raise ValueError("a validation without its step, loss or tokens")
        log.vals.append(values)
    elif name == "RESULT" and log.mfu:
        found = json.loads(rest)
        float(found["peak_bytes"] or 0)
        log.result = found
    else:
        raise ValueError(f"unknown line: {name}")


def pairs(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dict."""
    return dict(word.split("=", 1) for word in words)


def read_step(text: str) -> dict[str, float]:
    """What follows `step`: `20/50 | loss 6.123456 | dt 98.31 ms | tok/s 166657`."""
    position, *fields = text.split("|")
    step = {"step": int(position.partition("/")[0])}
    for field_text in fields:
        key, value, *_unit = field_text.split()
        if key != "left":  # the screen's: the time that is left
            step[key] = float(value)
    if "loss" not in step:
        raise ValueError("a step without its loss")
    step["dt_ms"] = step.pop("dt")
    step["tok_per_s"] = step.pop("tok/s")
    return step
