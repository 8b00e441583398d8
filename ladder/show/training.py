"""Runs of train.py and fsdp_run.py as a section of the page: one curve each."""

import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from ladder.disk import LOG_OF_A_RUN
from ladder.errors import UsageError
from ladder.log import Log, pairs_line, parse_log
from ladder.measure.folder import log_texts
from ladder.measure.losses import running_mean
from ladder.show.chart import CURVES, Axis, Chart, Picture
from ladder.show.page import Section, both, tag, terms
from ladder.show.words import rate

# ------------------------------------------------------------------ reading


def texts_at(path: Path) -> dict[str, str]:
    """The logs of the run at a path, the oldest first: a file, or a folder of checkpoints or of
    published logs. Raises OSError if there is nothing."""
    if not path.is_dir():
        return {path.name: path.read_text("utf-8", "replace")}
    texts = log_texts(path)
    names = filter(LOG_OF_A_RUN.fullmatch, texts)
    by_time = sorted(names, key=lambda name: name.partition("-")[2])
    return {name: texts[name] for name in by_time}


@dataclass
class Training:
    """A run of train.py or fsdp_run.py, however often it was resumed."""

    name: str
    color: str  # of its curve
    log: Log | None = None  # the newest that shows anything
    steps: list[dict] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # the first step of each log
    vals: list[dict] = field(default_factory=list)
    saved: bool = False  # whether its newest log has a checkpoint to go on from

    @property
    def tokens(self) -> np.ndarray:
        """How many million it had read after each step: (steps,)."""
        return column(self.steps, "step") * self.log.step_tokens / 1e6

    def add(self, log: Log):
        """Go on with a later log, which replaces what it has again."""
        if log.steps:
            first = log.steps[0]["step"]
            self.steps = [step for step in self.steps if step["step"] < first] + log.steps
            self.starts = [start for start in self.starts if start < first] + [first]
            self.vals = [val for val in self.vals if val["step"] < first]
            self.saved = any(note.startswith("saved") for note in log.notes)
        self.vals += log.vals
        self.log = log


def read_training(path: Path, color: str = "measured") -> Training:
    """The run at a path.

    A start that was refused leaves a log without a step: it shows nothing. Raises UsageError if no
    log shows anything, and if there are several runs.
    """
    run = Training("/".join(path.resolve().parts[-2:]), color)
    why = f"{path} has no climb.json and no log of a run"
    for name, text in texts_at(path).items():
        try:
            log = parse_log(text, name, ended=False)
        except UsageError as error:
            why = str(error)
            continue
        if run.saved and log.steps and log.steps[0]["step"] == 1:
            raise UsageError(f"{path} has the logs of several runs: name them one by one")
        if log.steps or log.vals:
            run.add(log)
    if not run.log:
        raise UsageError(why)
    if not run.steps:
        run.name += f": {run.vals[0]['loss']:.4f}"
    return run


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows], float)


# ------------------------------------------------------------------ curves


def draw_loss(runs: list[Training], width: int) -> Picture:
    """The losses of runs over tokens. One without a step (--steps 0) is a line to beat."""
    picture = Picture(width, "Loss over tokens")
    if len(runs) > 1:
        picture.legend({run.color: run.name for run in runs})
    losses = np.concatenate([column(run.steps + run.vals, "loss") for run in runs])
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        finite = np.ones(1)
    # The first losses would fill the chart: it cuts them off.
    up = Axis(0.98 * min(finite), 1.1 * np.percentile(finite, 95))
    up.name = "loss, nats a token; dashed: validation"
    across = Axis(0, max(max(run.tokens, default=0) for run in runs), "million tokens")
    chart = Chart(picture, across, up)
    for run in runs:
        if run.steps:
            draw_run(chart, run, alone=len(runs) == 1)
        else:
            loss = run.vals[0]["loss"]
            chart.line([across.low, across.high], [loss, loss], run.color, 1.5, "2 4")
    return picture


def draw_run(chart: Chart, run: Training, alone: bool):
    """The running mean of a run's losses, its validation, where it was resumed, and of a run alone
    the loss of each step."""
    color = run.color
    loss = column(run.steps, "loss")
    if alone:
        chart.line(run.tokens, loss, "grid", 1)
    window = 1 + len(loss) // 50
    mean = running_mean(loss, window)
    middle = run.tokens[window // 2 :]
    chart.line(middle[: len(mean)], mean, color, 2)
    at = column(run.vals, "step") * run.log.step_tokens / 1e6
    chart.line(at, column(run.vals, "loss"), color, 1.5, "6 2")
    for start in run.starts[1:]:
        chart.upright((start - 1) * run.log.step_tokens / 1e6, "resumed")


# ------------------------------------------------------------------ the section


def training_section(paths: list[Path]) -> Section:
    """The section that compares the runs at these paths. Raises UsageError."""
    found = [read_training(path, CURVES[min(k, 4)]) for k, path in enumerate(paths)]
    runs = [run for run in found if run.steps]
    if not runs:
        raise UsageError(f"{paths[0]} has no step yet")
    first = runs[0].log.run
    headline = f"Training {first['model']} on {first['data']}"
    vals = [val for run in runs for val in run.vals]
    if vals:
        headline += f": best validation loss {lowest(vals)['loss']:.2f} nats a token"
    parts = [both(partial(draw_loss, found))]
    for run in runs:
        parts += [tag("h3", run.name), terms(facts(run))]
    return Section(runs[0].name, headline, tag("div", parts))


def facts(run: Training) -> dict[str, str]:
    """A run in words, by their headings; what is empty is not said."""
    fields = run.log.run
    steps = run.steps
    last = steps[-1]["step"]
    passes = run.tokens[-1] * 1e6 / fields["tokens"]
    times = column(steps, "dt_ms")
    ms = np.median(times)
    validation = ""
    if run.vals:
        best, final = lowest(run.vals), run.vals[-1]
        validation = f"best {best['loss']:.4f}, after step {best['step']:,.0f}; "
        validation += f"last {final['loss']:.4f}, after step {final['step']:,.0f}"
    return {
        "Validation": validation,
        "Trained": f"{last:,} steps, {run.tokens[-1]:,.2f} million tokens, {passes:.2f} times "
        f"the text, in {times.sum() / 6e4:,.1f} minutes of steps",
        "Speed": f"{rate(run.log.step_tokens * 1e3 / ms)}, {ms:,.1f} ms a step",
        "Ended": run.log.result.get("status") or "under way, or killed",
        "Run": pairs_line("", fields),
    }


def lowest(vals: list[dict]) -> dict:
    """The val line of the lowest loss; one that is not finite comes last."""
    return min(vals, key=lambda val: (not math.isfinite(val["loss"]), val["loss"]))
