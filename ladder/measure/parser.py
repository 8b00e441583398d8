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
    log, not_ours = Log(), f"{path} is not a log of this ladder"
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            _read_line(log, line)
        except (ValueError, KeyError) as error:
            why = f"{not_ours}: line {number}: {line[:60].rstrip()!r}"
            raise BadInput(why) from error
    if not log.run:
        raise BadInput(f"{not_ours}: it has no run line")
    if not log.result:
        raise BadInput(f"{path} is cut short: it has no RESULT line")
    return log


def _read_line(log: Log, line: str) -> None:
    kind, _, rest = line.partition(" ")
    if line == "effective unknown" or log.result:  # a copy of the screen has a line after RESULT
        return
    if kind in ("run", "effective", "mfu"):
        setattr(log, kind, dict(word.split("=", 1) for word in shlex.split(rest)))
    elif kind == "note":
        log.notes.append(rest.strip())
    elif kind == "step":
        log.steps.append(_read_step(rest))
    elif kind == "val":
        pairs = (word.split("=", 1) for word in rest.split())
        log.vals.append({key: float(value) for key, value in pairs})
    elif kind == "RESULT":
        log.result = json.loads(rest)
    elif line.strip() and kind not in ("error", "sample"):  # older logs of ddp_run.py have that
        raise ValueError(f"unknown kind of line: {kind}")


def _read_step(text: str) -> dict[str, float]:
    position, *fields = text.split("|")
    values = {key: float(value) for key, value, *_ in map(str.split, fields)}
    dt, tok_per_s = values.pop("dt") / 1e3, values.pop("tok/s")
    return {"step": int(position.partition("/")[0]), "dt": dt, "tok_per_s": tok_per_s, **values}
