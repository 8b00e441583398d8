"""The log of a run, parsed. ladder/log.py writes what is read here."""

import json
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


def read_log(path: Path) -> Log:
    """Parse one log. Raises BadInput, naming the file, if truncated or not a log of this ladder."""
    log = Log()
    not_ours = f"{path} is not a log of this ladder"
    try:
        # A million steps are 70 MB.
        with regular(Path(path), 5e8).open(encoding="utf-8", newline="\n") as file:
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


def _once(pairs) -> dict:
    """A dict of pairs. Raises ValueError where a key stands twice: which one counts?"""
    found = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} stands twice")
        found[key] = value
    return found


def _read_line(log: Log, line: str) -> None:
    kind, _, rest = line.partition(" ")
    if kind in ("run", "effective", "mfu", "RESULT") and getattr(log, kind.lower()):
        raise ValueError(f"a second {kind} line")
    if line == "effective unknown" or log.result:  # a copy of the screen has a line after RESULT
        return
    if kind in ("run", "effective", "mfu"):
        if len(rest) > 10_000:  # shlex takes the square of it
            raise ValueError("too long")
        setattr(log, kind, _once(word.split("=", 1) for word in shlex.split(rest)))
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
        log.result = json.loads(rest, object_pairs_hook=_once)
    elif line.strip():
        raise ValueError(f"unknown kind of line: {kind}")


def _read_step(text: str) -> dict[str, float]:
    position, *fields = text.split("|")
    number, _, steps = position.strip().partition("/")
    if not (number.isdigit() and steps.isdigit()):
        raise ValueError(f"no step number in {text!r}")
    values = {"step": int(number)}
    for key, value, *_ in map(str.split, fields):
        if key in values:
            raise ValueError(f"{key} stands twice")
        values[sys.intern(key)] = float(value)
    if "loss" not in values:
        raise ValueError(f"no loss in {text!r}")
    values["dt"] /= 1e3
    values["tok_per_s"] = values.pop("tok/s")
    return values
