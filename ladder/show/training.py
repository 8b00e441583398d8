"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import math
from functools import partial
from pathlib import Path

import numpy as np

from ladder.errors import UsageError
from ladder.files import LOG_OF_A_RUN
from ladder.log import pairs_line, parse_log
from ladder.measure.folder import log_texts
from ladder.measure.losses import running_mean
from ladder.measure.rows import step_tokens
from ladder.show.chart import CURVES, Axis, Chart, Picture
from ladder.show.page import Section, both, tag, terms

# ------------------------------------------------------------------ reading


def texts_at(path: Path) -> dict[str, str]:
    """The logs of the run at a path, the oldest first: a file, or a folder of checkpoints or of
    published logs. Raises UsageError if there is nothing."""
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    if path.is_file():
        return {path.name: path.read_text("utf-8", "replace")}
    texts = log_texts(path)
    names = filter(LOG_OF_A_RUN.fullmatch, texts)
    by_time = sorted(names, key=lambda name: name.partition("-")[2])
    return {name: texts[name] for name in by_time}


def read_run(path: Path, color="measured") -> dict:
    """The run at a path, however often it was resumed: a later log replaces what it has again.

    `tokens` says how many million it had read after each step: (steps,). `starts` has the first
    step of each log. A start that was refused leaves a log without a step: it shows nothing. Raises
    UsageError if no log shows anything.
    """
    steps = []
    starts = []
    vals = []
    saved = False  # whether the log before has a checkpoint to go on from
    last = None
    why = f"{path} has no climb.json and no log of a run"
    for name, text in texts_at(path).items():
        try:
            log = parse_log(text, name, ended=False)
        except UsageError as error:
            why = str(error)
            continue
        if log.steps:
            first = log.steps[0]["step"]
            if first == 1 and saved:
                raise UsageError(f"{path} has the logs of several runs: name them one by one")
            saved = any(note.startswith("saved") for note in log.notes)
            steps = [step for step in steps if step["step"] < first] + log.steps
            starts = [start for start in starts if start < first] + [first]
            vals = [val for val in vals if val["step"] < first]
        if log.steps or log.vals:
            vals += log.vals
            last = log
    if not last:
        raise UsageError(why)
    name = "/".join(path.resolve().parts[-2:])
    if not steps:
        name += f": {vals[0]['loss']:.4f}"
    return {
        "name": name,
        "color": color,
        "fields": last.run,
        "status": last.result.get("status"),
        "steps": steps,
        "starts": starts,
        "vals": vals,
        "step_tokens": step_tokens(last),
        "tokens": column(steps, "step") * step_tokens(last) / 1e6,
    }


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows], float)


# ------------------------------------------------------------------ curves


def draw_loss(runs: list[dict], width: int) -> Picture:
    """The losses of runs over tokens. One without a step (--steps 0) is a line to beat."""
    picture = Picture(width, "Loss over tokens")
    if len(runs) > 1:
        picture.legend({run["color"]: run["name"] for run in runs})
    losses = np.concatenate([column(run["steps"] + run["vals"], "loss") for run in runs])
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        finite = np.ones(1)
    # The first losses would fill the chart: it cuts them off.
    up = Axis(0.98 * min(finite), 1.1 * np.percentile(finite, 95))
    up.name = "loss, nats a token; dashed: validation"
    across = Axis(0, max(max(run["tokens"], default=0) for run in runs), "million tokens")
    chart = Chart(picture, across, up)
    for run in runs:
        if run["steps"]:
            draw_run(chart, run, alone=len(runs) == 1)
        else:
            loss = run["vals"][0]["loss"]
            chart.line([across.low, across.high], [loss, loss], run["color"], 1.5, "2 4")
    return picture


def draw_run(chart: Chart, run: dict, alone: bool):
    """The running mean of a run's losses, its validation, where it was resumed, and of a run alone
    the loss of each step."""
    color = run["color"]
    loss = column(run["steps"], "loss")
    if alone:
        chart.line(run["tokens"], loss, "grid", 1)
    window = 1 + len(loss) // 50
    mean = running_mean(loss, window)
    middle = run["tokens"][window // 2 :]
    chart.line(middle[: len(mean)], mean, color, 2)
    at = column(run["vals"], "step") * run["step_tokens"] / 1e6
    chart.line(at, column(run["vals"], "loss"), color, 1.5, "6 2")
    for start in run["starts"][1:]:
        chart.upright((start - 1) * run["step_tokens"] / 1e6, "resumed")


# ------------------------------------------------------------------ the section


def training_section(paths: list[Path]) -> Section:
    """The section that compares the runs at these paths. Raises UsageError."""
    found = [read_run(path, CURVES[min(k, 4)]) for k, path in enumerate(paths)]
    runs = [run for run in found if run["steps"]]
    if not runs:
        raise UsageError(f"{paths[0]} has no step yet")
    first = runs[0]["fields"]
    headline = f"Training {first['model']} on {first['data']}"
    vals = [val for run in runs for val in run["vals"]]
    if vals:
        headline += f": best validation loss {lowest(vals)['loss']:.2f} nats a token"
    parts = [both(partial(draw_loss, found))]
    for run in runs:
        parts += [tag("h3", run["name"]), terms(facts(run))]
    return Section(runs[0]["name"], headline, tag("div", parts))


def facts(run: dict) -> dict[str, str]:
    """A run in words, by their headings; what is empty is not said."""
    fields = run["fields"]
    steps = run["steps"]
    last = steps[-1]["step"]
    passes = run["tokens"][-1] * 1e6 / int(fields["tokens"])
    times = column(steps, "dt_ms")
    ms = np.median(times)
    validation = ""
    if run["vals"]:
        best, final = lowest(run["vals"]), run["vals"][-1]
        validation = f"best {best['loss']:.4f}, after step {best['step']:,.0f}; "
        validation += f"last {final['loss']:.4f}, after step {final['step']:,.0f}"
    return {
        "Validation": validation,
        "Trained": f"{last:,} steps, {run['tokens'][-1]:,.2f} million tokens, {passes:.2f} times "
        f"the text, in {times.sum() / 6e4:,.1f} minutes of steps",
        "Speed": f"{run['step_tokens'] * 1e3 / ms:,.0f} tokens a second, {ms:,.1f} ms a step",
        "Ended": run["status"] or "under way, or killed",
        "Run": pairs_line("", fields),
    }


def lowest(vals: list[dict]) -> dict:
    """The val line of the lowest loss; one that is not finite comes last."""
    return min(vals, key=lambda val: (not math.isfinite(val["loss"]), val["loss"]))
