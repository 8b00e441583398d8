"""The log of a run, parsed. ladder/log.py writes what is read here."""

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from ladder.errors import BadInput


@dataclass
class Log:
    """One parsed log. Steps carry step, loss, dt (seconds), tok_per_s and a rung's own keys."""

    run: dict[str, str] = field(default_factory=dict)
    effective: dict[str, str] = field(default_factory=dict)
    mfu: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: list[dict[str, float]] = field(default_factory=list)
    vals: list[dict[str, float]] = field(default_factory=list)
    result: dict = field(default_factory=dict)


def read_log(path: Path) -> Log:
    """Parse one log. Raises BadInput, naming the file, if truncated or not a log of this ladder."""
    log = Log()
    not_ours = f"{path} is not a log of this ladder"
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            read_line(log, line)
        except (ValueError, KeyError) as error:
            raise BadInput(f"{not_ours}: line {number}: {line[:60].rstrip()!r}") from error
    if not log.run:
        raise BadInput(f"{not_ours}: it has no run line")
    if not log.result:
        raise BadInput(f"{path} is cut short: it has no RESULT line")
    return log


def read_line(log: Log, line: str):
    """Add what one line says to `log`. Raises ValueError or KeyError if it is not ours."""
    kind, _, rest = line.partition(" ")
    if log.result:  # a copy of the screen has a line after RESULT
        return
    if kind in ("run", "effective", "mfu"):
        setattr(log, kind, pairs(shlex.split(rest)))
    elif kind == "note":
        log.notes.append(rest.strip())
    elif kind == "step":
        log.steps.append(read_step(rest))
    elif kind == "val":
        values = pairs(rest.split())
        log.vals.append({key: float(value) for key, value in values.items()})
    elif kind == "RESULT":
        log.result = json.loads(rest)
    elif line.strip() and kind not in ("error", "sample"):  # older logs of ddp_run.py have that
        raise ValueError(f"unknown kind of line: {kind}")


def pairs(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dict."""
    return dict(word.split("=", 1) for word in words)


def read_step(text: str) -> dict[str, float]:
    """What follows `step`: `20/50 | loss 6.123456 | dt 98.31 ms | tok/s 166657`."""
    position, *fields = text.split("|")
    step = {"step": int(position.partition("/")[0])}
    for field_text in fields:
        key, value, *_unit = field_text.split()
        step[key] = float(value)
    step["dt"] /= 1e3
    step["tok_per_s"] = step.pop("tok/s")
    return step
