"""The log format: functions that write its lines, its only parser, and which run began last.

A line begins with its name: run, note, step, val, saved, effective, mfu, error or RESULT.
docs/measuring.md explains the keys. Values are read by key, never by column.
"""

import json
import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from ladder.errors import UsageError
from ladder.text import printable

# A log of a training run by its stem, with when it began, in UTC; it is beside its checkpoints too.
LOG_OF_A_RUN = re.compile(r"(?:\w+_run|train)-(\d{8}-\d{6}-\d{6})")


def pairs_line(name: str, pairs: dict) -> str:
    """`run   key=value …`; a value with a space or a quote is put in double quotes."""
    words = []
    for key, value in pairs.items():
        value = printable(str(value))
        if not re.fullmatch(r"[^\s\"'\\]+", value):
            value = json.dumps(value, ensure_ascii=False)
        words.append(f"{key}={value}")
    return f"{name:5s} " + " ".join(words)


def step_line(
    step: int, steps: int, *, loss: float, dt: float, tok_per_s: float, **more: float
) -> str:
    """One step: `dt` in seconds, `tok_per_s` in tokens per second, `more` values a rung adds."""
    line = f"step {step + 1:4d}/{steps} | loss {loss:.6f} | dt {dt * 1e3:8.2f} ms"
    line += f" | tok/s {tok_per_s:7.0f}"
    for key, value in more.items():
        line += f" | {key} {value:.4e}"
    return line


def log_name(script: Path) -> str:
    """The file name of a new log. In UTC: the logs of a run are in order, wherever it goes on."""
    return f"{script.stem}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S-%f}.log"


def warmup_of(steps: int) -> int:
    """How many steps of a run of so many are warm-up: the others are measured.

    A third of them, at least 2 (the second step is profiled) and at most 10. If the run has one or
    two, only the last is measured.
    """
    return min(10, max(2, steps // 3), steps - 1)


def percentiles(ms: list[float]) -> list[float]:
    """p10, the median and p90 of the times of steps; NaN if there are none."""
    import numpy as np  # not above: commands that only write lines start at once

    return np.percentile(ms or np.nan, (10, 50, 90)).tolist()


def mfu_line(flops_per_token: int, peak_flops: float | None, mfu: float | None) -> str:
    """The formula and the peak behind RESULT's `mfu`."""
    mfu = "unknown" if mfu is None else f"{mfu:.4f}"
    peak = f"{peak_flops:.4g}" if peak_flops else "unknown"
    return f"mfu   mfu={mfu} formula=6N+12LCT flops_per_token={flops_per_token} peak_flops={peak}"


@dataclass
class Step:
    """A step line."""

    step: int  # from 1 on
    loss: float
    dt_ms: float
    tok_per_s: float
    more: dict[str, float] = field(default_factory=dict)  # of a rung: norm, lr


@dataclass
class Val:
    """A val line: the loss on held-out tokens after a step, or before the first one."""

    step: int
    loss: float
    tokens: int


@dataclass
class Log:
    """One parsed log."""

    run: dict = field(default_factory=dict)  # text by key, as the next two
    effective: dict = field(default_factory=dict)
    mfu: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    vals: list[Val] = field(default_factory=list)
    result: dict = field(default_factory=dict)
    autocast_off: bool = False  # the device has no units for half precision, or --dtype says so
    throttled: int = 0  # how often it waited, as its share of the CPU was used up
    saved: bool = False  # it has a checkpoint to go on from

    @property
    def warmup_steps(self) -> int:
        """How many of its steps are warm-up; it has all of them."""
        return warmup_of(len(self.steps))

    @property
    def step_times(self) -> list[float]:
        """Milliseconds of the measured steps, without the warm-up."""
        return [step.dt_ms for step in self.steps[self.warmup_steps :]]

    @property
    def median_ms(self) -> float:
        """The median of the measured steps, in milliseconds."""
        return percentiles(self.step_times)[1]

    @property
    def step_tokens(self) -> int:
        """The tokens that one step trains on; train.py takes several batches of B·T for it."""
        return int(self.run.get("total_batch", self.run["B"] * self.run["T"]))

    @property
    def ms_per_token(self) -> float:
        """The median of the measured steps, divided by the tokens of a step."""
        return self.median_ms / self.step_tokens


# What a line has to have, and which of that are numbers.
REQUIRED = {
    "run": "script commit torch python device model params B T steps data tokens epoch_batches",
    "mfu": "flops_per_token peak_flops",
    "val": "step loss tokens",
}
INTEGERS = "params B T steps tokens flops_per_token step"
FLOATS = "epoch_batches loss"
# How notes begin that until 28 November 2026 alone said what fields of Log say.
OLD_NOTES = {"autocast stays off": "autocast_off", "saved ": "saved"}


def read_log(path: Path) -> Log:
    """Parse one log. Raises UsageError, naming the file, if it is cut short or not one of ours."""
    return parse_log(path.read_text("utf-8", "replace"), str(path))


def parse_log(text: str, name: str, ended: bool = True) -> Log:
    """Parse the text of a log, as `read_log` does; errors call it `name`.

    With `ended` False it may be that of a run that is under way, or was killed.
    """
    log = Log()
    lines = text.split("\n")
    if not ended:
        lines.pop()  # it may not be complete
    for line in lines:
        try:
            read_line(log, line)
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{name} is not a log of this ladder: {line[:60]!r}") from None
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
        setattr(log, name, read_pairs(name, rest))
        if name == "run":
            log.autocast_off = log.run.get("dtype") == "float32"
    elif name == "note":
        log.notes.append(rest.strip())
        for beginning, fact in OLD_NOTES.items():
            if log.notes[-1].startswith(beginning):
                setattr(log, fact, True)
    elif name == "step":
        log.steps.append(read_step(rest))
    elif name == "val":
        found = read_pairs(name, rest)
        log.vals.append(Val(found["step"], found["loss"], found["tokens"]))
    elif name == "saved":
        log.saved = True
    elif name == "RESULT" and log.mfu:
        log.result = json.loads(rest)
        float(log.result["peak_bytes"] or 0)
        log.throttled = int(log.result.get("throttled", log.throttled))
    else:
        raise ValueError(f"unknown line: {name}")


def read_pairs(name: str, text: str) -> dict[str, str | float]:
    """What follows `run` or another `name`: `key=value …`, as pairs_line writes it."""
    found = pairs(shlex.split(text))
    for key in REQUIRED.get(name, "").split():
        value = found[key]
        if key in INTEGERS.split():
            found[key] = int(value)
        elif key in FLOATS.split():
            found[key] = float(value)
    return found


def pairs(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dict."""
    return dict(word.split("=", 1) for word in words)


def read_step(text: str) -> Step:
    """What follows `step`: `20/50 | loss 6.123456 | dt 98.31 ms | tok/s 166657`."""
    position, *fields = text.split("|")
    more = {}
    for field_text in fields:
        key, value, *_unit = field_text.split()
        if key != "left":  # the screen's: the time that is left
            more[key] = float(value)
    return Step(
        step=int(position.partition("/")[0]),
        loss=more.pop("loss"),
        dt_ms=more.pop("dt"),
        tok_per_s=more.pop("tok/s"),
        more=more,
    )


def runs_by_time() -> dict[str, Path]:
    """The folders in checkpoints/ by when their newest log began, the newest run last.

    By no file's time: it may be that of a copy. Of a run and a copy of it the first by name counts.
    """
    found = {}
    for path in sorted(Path("checkpoints").glob("*/*.log")):
        log = LOG_OF_A_RUN.fullmatch(path.stem)
        if log:
            found.setdefault(log[1], path.parent)
    return dict(sorted(found.items()))
