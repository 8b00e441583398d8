"""The log format: functions that write its lines. ladder/measure/parser.py is its only parser.

A line begins with its kind: run, note, step, val, effective, mfu, error or RESULT. docs/log.md has
all keys. Values are read by key, never by column.
"""

import json
import math
import re

from ladder.text import printable


def pairs_line(kind: str, pairs: dict) -> str:
    """`run   key=value …`; a value with a space or a quote is put in double quotes."""
    words = [f"{key}={_quoted(str(value))}" for key, value in pairs.items()]
    return f"{kind:5s} " + " ".join(words)


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
    times, losses, *, steps, tokens_per_step, flops_per_token, peak_flops, ranks=1, peak_bytes=None
) -> dict:
    """RESULT's numbers. `times` (seconds) and `losses` are those of the steps done so far.

    `steps` is how many the run is to have: a third of them is warm-up, at least 2 (the second step
    is profiled) and at most 10. If the run has one or two, only the last is measured.
    `tokens_per_step` are those of all ranks, `peak_flops` is one device's, in FLOP/s. What is not
    known is None.
    """
    import numpy as np  # not above: commands that only write lines start at once

    ms = [seconds * 1e3 for seconds in times]
    warmup = min(10, max(2, steps // 3))
    if steps < 3:
        warmup = steps - 1
    measured = ms[warmup:]
    p10, median, p90 = np.percentile(measured or math.nan, (10, 50, 90)).tolist()
    tok_per_s = tokens_per_step * 1e3 / median
    peak = ranks * (peak_flops or math.nan)
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


def mfu_line(flops_per_token: int, peak_flops: float | None, mfu: float | None) -> str:
    """The formula and the peak behind RESULT's `mfu`."""
    mfu = "unknown" if mfu is None else f"{mfu:.4f}"
    peak = f"{peak_flops:.4g}" if peak_flops else "unknown"
    return f"mfu   mfu={mfu} formula=6N+12LCT flops_per_token={flops_per_token} peak_flops={peak}"
