"""The log format: functions that write its lines. ladder/commands/log.py is its only parser.

    run   key=value …        what runs where, on which data
    note  text               a download or a fallback
    step   20/50 | loss 6.123456 | dt   98.31 ms | tok/s  166657
    val   key=value …        the loss on held-out text after some step
    effective  key=value …   what the steps really ran, or `unknown` after one step
    mfu   key=value …        the formula and the peak behind RESULT's mfu
    error text               why a run stopped
    RESULT {json}

Values are read by key, never by column.
"""

import json
import math
import re


def pairs_line(kind: str, pairs: dict) -> str:
    """`run   key=value …`; a value with a space or a quote is put in double quotes."""
    return f"{kind:5s} " + " ".join(f"{key}={_quoted(str(value))}" for key, value in pairs.items())


def printable(text: str, keep: str = "") -> str:
    r"""`text` with newlines, bytes that are not UTF-8 and the like escaped, as \n and \udcff.

    Characters of `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def show(line: str) -> None:
    """Print one line as logs have it: a file name in it cannot control the terminal."""
    print(printable(line))


def _quoted(value: str) -> str:
    value = printable(value)
    plain = re.fullmatch(r"[^\s\"'\\]+", value)
    return value if plain else json.dumps(value, ensure_ascii=False)


def step_line(step: int, steps: int, *, loss: float, dt: float, tok_per_s: float, **more) -> str:
    """One step: `dt` in seconds, `tok_per_s` in tokens per second, `more` values a rung adds."""
    line = f"step {step + 1:4d}/{steps} | loss {loss:.6f} | dt {dt * 1e3:8.2f} ms"
    line += f" | tok/s {tok_per_s:7.0f}"
    return line + "".join(f" | {key} {value:.4e}" for key, value in more.items())


def warmup_steps(steps: int) -> int:
    """How many of a run's steps RESULT leaves out: a third, at least 2 and at most 10.

    The second step is profiled. With one or two steps the last one counts, and a note says that
    this is not a measurement.
    """
    return min(10, max(2, steps // 3), max(steps - 1, 0))


def result(
    script: str,
    status: str,
    times: list[float],
    losses: list[float],
    *,
    planned: int,
    tokens_per_step: int,
    flops_per_token: float,
    peak_flops: float | None,
    ranks: int = 1,
    peak_bytes: int | None = None,
) -> dict:
    """RESULT's fields, from the seconds and losses of the steps done.

    Of a run of `planned` steps the first are warm-up. `tokens_per_step` are those of all ranks,
    `peak_flops` is one device's, in FLOP/s. What is not known is None.
    """
    import numpy as np  # not above: commands that only write lines start at once

    ms = [seconds * 1e3 for seconds in times]
    measured = ms[warmup_steps(planned) :]
    p10, median, p90 = np.percentile(measured, (10, 50, 90)).tolist() if measured else [None] * 3
    tok_per_s = tokens_per_step * 1e3 / median if median else None
    mfu = flops_per_token * tok_per_s / (peak_flops * ranks) if tok_per_s and peak_flops else None
    first, final = (losses[0], losses[-1]) if losses else (math.nan, math.nan)
    return {
        "script": script,
        "status": status,
        "median_ms": _rounded(median, 3),
        "p10_ms": _rounded(p10, 3),
        "p90_ms": _rounded(p90, 3),
        "measured_steps": len(measured),
        "warmup_steps": len(ms) - len(measured),
        "tok_per_s": _rounded(tok_per_s, 1),
        "mfu": _rounded(mfu, 4),
        "peak_bytes": peak_bytes,
        "first_step_ms": _rounded(ms[0], 3) if ms else None,
        "first_loss": first if math.isfinite(first) else None,
        "final_loss": final if math.isfinite(final) else None,
    }


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)


def mfu_facts(flops_per_token: float, peak_flops: float | None, mfu: float | None) -> dict:
    """The mfu line's fields: the formula and the peak behind RESULT's `mfu`."""
    return {
        "mfu": "unknown" if mfu is None else f"{mfu:.4f}",
        "formula": "6N+12LCT",
        "flops_per_token": flops_per_token,
        "peak_flops": f"{peak_flops:.4g}" if peak_flops else "unknown",
    }
