"""A run of train.py or fsdp_run.py, read from its logs."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ladder.errors import UsageError
from ladder.log import LOG_OF_A_RUN, Log, Step, Val, parse_log
from ladder.measure.folder import log_texts
from ladder.text import say


def texts_at(path: Path) -> dict[str, str]:
    """The logs of the run at a path, the oldest first: a file, or a folder of checkpoints or of
    published logs. Raises OSError if there is nothing."""
    if not path.is_dir():
        return {path.name: path.read_text("utf-8", "replace")}
    texts = log_texts(path)
    names = filter(LOG_OF_A_RUN.fullmatch, texts)
    by_time = sorted(names, key=lambda name: LOG_OF_A_RUN.fullmatch(name)[1])
    return {name: texts[name] for name in by_time}


@dataclass
class Training:
    """A run of train.py or fsdp_run.py, however often it was resumed."""

    name: str
    log: Log | None = None  # the newest that shows anything
    steps: list[Step] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # the first step of each log
    vals: list[Val] = field(default_factory=list)
    saved: bool = False  # whether its newest log has a checkpoint to go on from

    @property
    def tokens(self) -> np.ndarray:
        """How many million it had read after each step: (steps,)."""
        return np.array([step.step for step in self.steps]) * self.log.step_tokens / 1e6

    def add(self, log: Log):
        """Go on with a later log, which replaces what it has again."""
        if log.steps:
            first = log.steps[0].step
            self.steps = [step for step in self.steps if step.step < first] + log.steps
            self.starts = [start for start in self.starts if start < first] + [first]
            self.vals = [val for val in self.vals if val.step < first]
            self.saved = log.saved
        self.vals += log.vals
        self.log = log


def lowest(vals: list[Val]) -> Val:
    """The validation of the lowest loss; one that is not finite comes last."""
    return min(vals, key=lambda val: (not math.isfinite(val.loss), val.loss))


def read_training(path: Path) -> Training:
    """The run at a path.

    A start that was refused leaves a log without a step: it shows nothing. Raises UsageError if no
    log shows anything, and if there are several runs.
    """
    run = Training("/".join(path.resolve().parts[-2:]))
    why = f"{path} has no climb.json and no log of a run"
    for name, text in texts_at(path).items():
        try:
            log = parse_log(text, name, ended=False)
        except UsageError as error:
            why = str(error)
            if "\nstep " in text:
                say(f"note  {why}; its steps are left out")
            continue
        if run.saved and log.steps and log.steps[0].step == 1:
            raise UsageError(f"{path} has the logs of several runs: name them one by one")
        if log.steps or log.vals:
            run.add(log)
    if not run.log:
        raise UsageError(why)
    return run
