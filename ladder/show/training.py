"""Runs of train.py and fsdp_run.py as a section of the page: one curve each."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np

from ladder.errors import UsageError
from ladder.log import pairs_line
from ladder.measure.losses import running_mean
from ladder.measure.training import Training, lowest, read_training
from ladder.show.chart import CURVES, Axis, Chart, Picture
from ladder.show.page import Section, both, tag, terms
from ladder.show.words import rate

# ------------------------------------------------------------------ curves


def draw_loss(runs: list[Training], width: int) -> Picture:
    """The losses of runs over tokens. One without a step (--steps 0) is a line to beat."""
    picture = Picture(width, "Loss over tokens")
    if len(runs) > 1:
        picture.legend({color_of(k): label(run) for k, run in enumerate(runs)})
    losses = np.array([line.loss for run in runs for line in run.steps + run.vals])
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        finite = np.ones(1)
    # The first losses of a long run would fill the chart: it cuts them off, and says so.
    high = 1.5 * np.percentile(finite, 95)
    up = Axis(0.98 * min(finite), min(high, 1.01 * max(finite)))
    cut = f" (up to {max(finite):.1f})" if high < max(finite) else ""
    up.name = f"loss, nats a token{cut}; dashed: validation"
    across = Axis(0, max(max(run.tokens, default=0) for run in runs), "million tokens")
    chart = Chart(picture, across, up)
    for k, run in enumerate(runs):
        if run.steps:
            draw_run(chart, run, color_of(k), alone=len(runs) == 1)
        else:
            loss = run.vals[0].loss
            chart.line([across.low, across.high], [loss, loss], color_of(k), 1.5, "2 4")
    return picture


def color_of(k: int) -> str:
    """The color of a curve, by its place among those compared; of the fifth and later ones soft."""
    return CURVES[min(k, len(CURVES) - 1)]


def label(run: Training) -> str:
    """The name of a run; of one without a step, its loss too."""
    return run.name if run.steps else f"{run.name}: {run.vals[0].loss:.4f}"


def draw_run(chart: Chart, run: Training, color: str, alone: bool):
    """The running mean of a run's losses, its validation, where it was resumed, and of a run alone
    the loss of each step."""
    loss = np.array([step.loss for step in run.steps])
    if alone:
        chart.line(run.tokens, loss, "grid", 1)
    window = 1 + len(loss) // 50
    mean = running_mean(loss, window)
    middle = run.tokens[window // 2 :]
    chart.line(middle[: len(mean)], mean, color, 2)
    at = [val.step * run.log.step_tokens / 1e6 for val in run.vals]
    chart.line(at, [val.loss for val in run.vals], color, 1.5, "6 2")
    for start in run.starts[1:]:
        chart.upright((start - 1) * run.log.step_tokens / 1e6, "resumed")


# ------------------------------------------------------------------ the section


def training_section(paths: list[Path]) -> Section:
    """The section that compares the runs at these paths. Raises UsageError."""
    compared = [read_training(path) for path in paths]
    runs = [run for run in compared if run.steps]
    if not runs:
        raise UsageError(f"{paths[0]} has no step yet")
    first = runs[0].log.run
    headline = f"Training {first['model']} on {first['data']}"
    vals = [val for run in runs for val in run.vals]
    if vals:
        headline += f": best validation loss {lowest(vals).loss:.2f} nats a token"
    parts = [both(partial(draw_loss, compared))]
    for run in runs:
        parts += [tag("h3", run.name), terms(in_words(run))]
    return Section(runs[0].name, headline, tag("div", parts))


def in_words(run: Training) -> dict[str, str]:
    """A run in words, by their headings; what is empty is not said."""
    fields = run.log.run
    steps = run.steps
    last = steps[-1].step
    tokens = last * run.log.step_tokens
    passes = tokens / fields["tokens"]
    times = np.array([step.dt_ms for step in steps])
    ms = np.median(times)
    validation = ""
    if run.vals:
        best, final = lowest(run.vals), run.vals[-1]
        validation = f"best {best.loss:.4f}, after step {best.step:,}; "
        validation += f"last {final.loss:.4f}, after step {final.step:,}"
    return {
        "Validation": validation,
        "Trained": f"{last:,} steps, {tokens:,} tokens, {passes:,.3g} times the text",
        "Time": f"{timedelta(seconds=round(times.sum() / 1e3))} (hours, minutes, seconds) of steps",
        "Speed": f"{rate(run.log.step_tokens * 1e3 / ms)}, {ms:,.1f} ms a step",
        "Ended": run.log.result.get("status") or "under way, or killed",
        "Run": pairs_line("", fields | {"epoch_batches": f"{fields['epoch_batches']:.9g}"}),
    }
