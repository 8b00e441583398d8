"""The log format: functions that write its lines, and its only parser.

    run   key=value …        what runs where, on which data
    note  text               a download or a fallback
    step   20/50 | loss 6.123456 | dt   98.31 ms | tok/s  166657
    val   key=value …        the loss on held-out text after some step
    effective  key=value …   what the steps really ran, or `unknown` after one step
    mfu   key=value …        the formula and the peak behind RESULT's mfu
    sample "text"            what the trained model writes, as a JSON string
    error text               why a run stopped
    RESULT {json}

Values are read by key, never by column.
"""

import json
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ladder.errors import BadInput
from ladder.files import regular


@dataclass
class Log:
    """One parsed log. Steps carry step, loss, dt (seconds), tok_per_s and a rung's own keys."""

    run: dict[str, str] = field(default_factory=dict)
    effective: dict[str, str] = field(default_factory=dict)
    mfu: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    steps: list[dict[str, float]] = field(default_factory=list)
    vals: list[dict[str, float]] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    result: dict = field(default_factory=dict)


def pairs_line(kind: str, pairs: dict) -> str:
    """`run   key=value …`; a value with a space or a quote is put in double quotes."""
    return f"{kind:5s} " + " ".join(f"{key}={_quoted(str(value))}" for key, value in pairs.items())


def printable(text: str) -> str:
    r"""`text` with newlines, bytes that are not UTF-8 and the like escaped, as \n and \udcff."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


def read_log(path: Path) -> Log:
    """Parse one log. Raises BadInput, naming the file, if truncated or not a log of this ladder."""
    log = Log()
    not_ours = f"{path} is not a log of this ladder"
    try:
        with regular(Path(path)).open(
            encoding="utf-8", newline="\n"
        ) as file:  # may have a million steps
            for number, line in enumerate(file, 1):
                try:
                    _read_line(log, line.rstrip("\r\n"))
                except (ValueError, KeyError, RecursionError) as error:
                    why = f"{not_ours}: line {number}: {line[:60].rstrip()!r}"
                    raise BadInput(why) from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{not_ours}: it is not text") from error
    if not log.run:
        raise BadInput(f"{not_ours}: it has no run line")
    if not log.result:
        raise BadInput(f"{path} is cut short: it has no RESULT line")
    return log


def _read_line(log: Log, line: str) -> None:
    kind, _, rest = line.partition(" ")
    if kind in ("run", "effective", "mfu", "RESULT") and getattr(log, kind.lower()):
        raise ValueError(f"a second {kind} line")
    if line == "effective unknown" or log.result:  # a copy of the screen has a line after RESULT
        return
    if kind in ("run", "effective", "mfu"):
        getattr(log, kind).update(word.split("=", 1) for word in shlex.split(rest))
    elif kind in ("note", "error"):
        getattr(log, kind + "s").append(rest.strip())
    elif kind == "step":
        log.steps.append(_read_step(rest))
    elif kind == "val":
        pairs = (word.split("=", 1) for word in rest.split())
        log.vals.append({key: float(value) for key, value in pairs})
    elif kind == "sample":
        log.samples.append(json.loads(rest))
    elif kind == "RESULT":
        log.result = json.loads(rest)
    elif line.strip():
        raise ValueError(f"unknown kind of line: {kind}")


def _read_step(text: str) -> dict[str, float]:
    position, *fields = text.split("|")
    number, _, steps = position.strip().partition("/")
    if not (number.isdigit() and steps.isdigit()):
        raise ValueError(f"no step number in {text!r}")
    values = {"step": int(number)}
    for key, value, *_ in map(str.split, fields):
        values[sys.intern(key)] = float(value)
    if "loss" not in values:
        raise ValueError(f"no loss in {text!r}")
    values["dt"] /= 1e3
    values["tok_per_s"] = values.pop("tok/s")
    return values
