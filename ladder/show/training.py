"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import json
import math
import re
import statistics
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape

from ladder.errors import UsageError
from ladder.log import Log, parse_log
from ladder.measure.folder import PACKED, log_texts
from ladder.measure.losses import running_mean
from ladder.measure.rows import step_tokens
from ladder.show.chart import CURVES, Chart, Picture, Scale
from ladder.show.page import Section, both, pairs, tag, terms

HERE = Path(__file__).parent
# A log as ladder.run names it, by date and time.
OF_A_RUN = re.compile(r"\w+_run-\d{8}-\d{6}-\d{6}")
# The values of the step lines; all but the loss are drawn where all runs have them.
VALUES = {
    "loss": "loss, nats a token",
    "lr": "learning rate",
    "norm": "gradient norm, before clipping",
    "tok_per_s": "tokens a second",
}
READING = (
    "Minutes add up the steps in the curve, without validation and checkpoints. The text is read "
    "in order unless --shuffle is given: where a passage is easier, the training loss dips. The "
    "validation loss is always on the same text."
)


# ------------------------------------------------------------------ reading


def find_runs(path: Path) -> dict[Path, dict[str, str]]:
    """The runs at a path: the texts of the logs of each by name, in the order of the names.

    A file is one run, and so is a folder of checkpoints or published logs: it keeps the logs of
    one, however often that was resumed. Any other folder has a run in each of its logs. Raises
    UsageError if there is none.
    """
    is_packed = path.name.startswith(PACKED)
    if path.is_file() and not is_packed:
        return {path: {path.name: path.read_text("utf-8", "replace")}}
    folder = path.parent if is_packed else path
    if not folder.is_dir():
        raise UsageError(f"{path} does not exist")
    texts = log_texts(folder)
    of_one = {name: text for name, text in texts.items() if OF_A_RUN.fullmatch(name)}
    if of_one:
        by_time = sorted(of_one, key=lambda name: name.partition("-")[2])
        return {folder: {name: of_one[name] for name in by_time}}
    if texts:
        return {folder / f"{name}.log": {name: text} for name, text in texts.items()}
    raise UsageError(f"{path} has no climb.json and no log of a run")


def read_logs(texts: dict[str, str]) -> tuple[list[Log], list[str]]:
    """The logs of a run that have something to show, and why others are left out."""
    logs = []
    left_out = []
    for name, text in texts.items():
        try:
            log = parse_log(text, name, ended=False)
        except UsageError as error:
            left_out.append(str(error))
            continue
        if log.steps or log.vals:
            logs.append(log)
        else:
            left_out.append(f"{name} has no step")
    return in_order(logs), left_out


def in_order(logs: list[Log]) -> list[Log]:
    """Logs in an order in which each goes on from a step that those before it reached.

    Where several can be next it is the first of them: their names have local times, which are not
    in order after a change of clocks.
    """
    waiting = [*logs]
    ordered = []
    reached = 0
    while waiting:
        log = next((log for log in waiting if first_step(log) <= reached + 1), None)
        if log is None:  # the one that it went on from is lost
            log = min(waiting, key=first_step)
        waiting.remove(log)
        ordered.append(log)
        if log.steps:
            reached = log.steps[-1]["step"]
    return ordered


def first_step(log: Log) -> float:
    """The step that a log begins with."""
    return log.steps[0]["step"] if log.steps else log.vals[0]["step"]


def gather_run(path: Path) -> dict:
    """The one run at a path. Raises UsageError."""
    ((_, texts),) = find_runs(path).items()
    return run_of(path, read_logs(texts)[0])


def run_of(path: Path, logs: list[Log]) -> dict:
    """A run by its logs: a later log replaces what it has again.

    `tokens` and `minutes` say how far it was after each step: (steps,) each. `starts` has the first
    step of each log.
    """
    steps = []
    starts = []
    vals = []
    for log in logs:
        if log.steps:
            first = log.steps[0]["step"]
            steps = [step for step in steps if step["step"] < first] + log.steps
            starts = [start for start in starts if start < first] + [first]
            vals = [val for val in vals if val["step"] < first]
        vals += log.vals
    number = column(steps, "step")
    return {
        "path": path,
        "name": path.name,
        "fields": log.run,  # the last log's
        "status": log.result.get("status"),
        "steps": steps,
        "starts": starts,
        "vals": vals,
        "step_tokens": step_tokens(log),
        "tokens": number * step_tokens(log),
        "minutes": column(steps, "dt_ms").cumsum() / 6e4,
        "window": 1 + len(steps) // 50,  # of the running mean
    }


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows], float)


def distinct_names(paths: list[Path]) -> list[str]:
    """The last part of each path, and as many before it as it takes to tell them apart."""
    paths = [path.resolve() for path in paths]
    count = 1
    while True:
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len({*names}) == len({*paths}):
            return names
        count += 1


# ------------------------------------------------------------------ curves


def draw_loss(runs: list[dict], references: list[dict], over: str, width: int) -> Picture:
    """The losses of runs over `tokens` or `minutes`, and over tokens the references."""
    picture = Picture(width, VALUES["loss"])
    picture.legend(legend(runs))
    chart, unit = chart_of(picture, runs, "loss", over, 240)
    for run, color in zip(runs, colors_of(runs), strict=True):
        x = run[over] / unit
        y = column(run["steps"], "loss")
        val_color = color
        if len(runs) == 1:
            chart.line(x, y, "faint", 1)
            val_color = "ink"
        mean = running_mean(y, run["window"])
        chart.line(x[run["window"] // 2 :][: len(mean)], mean, color, 2)
        number = column(run["steps"], "step")
        at = np.interp(column(run["vals"], "step"), [0, *number], [0, *x])
        chart.line(at, column(run["vals"], "loss"), val_color, 1.5, "6 2")
        for start in run["starts"][1:]:
            resumed = np.interp(start - 1, number, x)
            chart.upright(resumed, "stopped and resumed")
    if over == "tokens":
        ends = {}
        for number, line in enumerate(references, 1):
            x, y = np.array(line["points"]).T  # million tokens, nats
            chart.line(x * 1e6 / unit, y, "reported", 1.5, "2 4")
            end = np.interp(chart.across.high * unit / 1e6, x, y)
            if chart.up.low <= end <= chart.up.high:
                ends[f"{number}"] = end
        chart.end_labels(ends, {})
    return picture


def draw_value(runs: list[dict], key: str, width: int) -> Picture:
    """Another value of the step lines over tokens."""
    picture = Picture(width, VALUES[key])
    chart, unit = chart_of(picture, runs, key, "tokens", 90)
    for run, color in zip(runs, colors_of(runs), strict=True):
        chart.line(run["tokens"] / unit, column(run["steps"], key), color, 1)
    return picture


def chart_of(picture, runs, key: str, over: str, height: int) -> tuple[Chart, float]:
    """A chart as long as the longest run, and the unit of its axis: tokens or minutes.

    The first losses and norms would fill the chart: they are cut off, and the words say so.
    """
    values = []
    for run in runs:
        for row in run["steps"] + run["vals"]:
            if math.isfinite(row.get(key, math.nan)):
                values.append(row[key])
    values = values or [0]
    low = 0.98 * min(values) if key == "loss" else 0
    up = Scale(low, 1.1 * np.percentile(values, 95))
    words = VALUES[key]
    if max(values) > up.high:
        words += f"; cut off above, the highest is {max(values):.4g}"
    longest = max(run[over][-1] for run in runs)
    unit, name = 1, over
    if over == "tokens":
        unit, name = (1e6, "million tokens") if longest >= 1e6 else (1e3, "thousand tokens")
    chart = Chart(picture, Scale(0, longest / unit), up, height, margin=32)
    chart.axes(words, name)
    return chart, unit


def legend(runs: list[dict]) -> dict[str, str]:
    """What each colour is."""
    if len(runs) == 1:
        means = f"mean of {runs[0]['window']} steps"
        return {"faint": "each step", "measured": means, "ink": "validation, on held-out text"}
    labels = {}
    for run, color in zip(runs, colors_of(runs), strict=True):
        labels[color] = f"{run['name']}: training loss, dashed: validation"
    return labels


def colors_of(runs: list[dict]) -> list[str]:
    """A colour for each run; from the fifth on they are grey."""
    return [*CURVES, *["soft"] * len(runs)][: len(runs)]


# ------------------------------------------------------------------ the section


def training_section(paths: list[Path]) -> tuple[Section, list[str]]:
    """The section that compares the runs at these paths, and the logs that are left out, and why.

    A run without a step (--steps 0) is a line to beat: the held-out loss of a model. Raises
    UsageError.
    """
    found, left_out = read_runs(paths)
    runs = [run for run in found if run["steps"]]
    if not runs:
        raise UsageError("; ".join(left_out) or f"{paths[0]} has no step yet")
    first = runs[0]["fields"]
    headline = f"Training {first['model']} on {first['data']}"
    vals = [val for run in runs for val in run["vals"]]
    if vals:
        headline += f": best validation loss {lowest(vals)['loss']:.2f} nats a token"
    references = references_of(found, first["model"])
    parts = [references_html(references)]
    for over in ("tokens", "minutes"):
        parts.append(both(partial(draw_loss, runs, references, over)))
    for key in ("lr", "norm", "tok_per_s"):
        if all(key in run["steps"][0] for run in runs):
            parts.append(both(partial(draw_value, runs, key)))
    parts.append(tag("p", READING, "soft"))
    for run in runs:
        parts += [tag("h3", run["name"]), terms(facts(run))]
    label = f"training {first['model']} on {first['device']}"
    return Section(runs[0]["name"], label, headline, tag("div", parts)), left_out


def read_runs(paths: list[Path]) -> tuple[list[dict], list[str]]:
    """The runs at these paths, their names all different, and the logs that are left out, and
    why."""
    found = []
    left_out = []
    for path in paths:
        for at, texts in find_runs(path).items():
            logs, without_steps = read_logs(texts)
            left_out += [f"{at}: {why}" for why in without_steps]
            if logs:
                found.append(run_of(at, logs))
    names = distinct_names([run["path"] for run in found])
    for run, name in zip(found, names, strict=True):
        run["name"] = name
    return found, left_out


def references_of(found: list[dict], model: str) -> list[dict]:
    """The lines to beat of a model: own runs without a step, and what others reported."""
    lines = []
    for run in found:
        if not run["steps"]:
            loss = run["vals"][0]["loss"]
            name = f"{run['name']}, before training on {run['fields']['data']}: {loss:.4f}"
            points = [[0, loss], [1e9, loss]]
            lines.append({"model": run["fields"]["model"], "name": name, "points": points})
    lines += json.loads(HERE.joinpath("references.json").read_text("utf-8"))
    return [line for line in lines if line["model"] == model]


def references_html(references: list[dict]) -> Markup:
    """What each line to beat is, and where it comes from."""
    items = []
    for line in references:
        item = escape(line["name"])
        if "url" in line:
            link = Markup(', reported: <a href="{}">{}</a>')
            item += link.format(line["url"], line["source"])
        items.append(tag("li", item))
    if not items:
        return Markup("")
    return tag("p", "Dotted, by number, and only roughly comparable:") + tag("ol", items)


def facts(run: dict) -> dict[str, str]:
    """A run in words, by their headings; what is empty is not said."""
    last = run["steps"][-1]["step"]
    tokens = run["tokens"][-1]
    passes = tokens / int(run["fields"]["tokens"])
    minutes = run["minutes"][-1]
    ms = statistics.median(step["dt_ms"] for step in run["steps"])
    tok_per_s = run["step_tokens"] * 1e3 / ms
    unfinished = last < int(run["fields"]["steps"])
    return {
        "Validation": validation(run["vals"]),
        "Trained": f"{last:,} steps, {tokens:,.0f} tokens, {passes:.2f} times the text, in "
        f"{minutes:,.1f} minutes of steps",
        "Speed": f"{tok_per_s:,.0f} tokens a second, {ms:,.1f} ms a step (median)",
        "Resumed": ", ".join(f"after step {start - 1:,}" for start in run["starts"][1:]),
        "Ended": run["status"] or ("under way, or killed" if unfinished else "all steps are done"),
        "Run": pairs(run["fields"]),
    }


def lowest(vals: list[dict]) -> dict:
    """The val line of the lowest loss that is finite."""
    finite = [val for val in vals if math.isfinite(val["loss"])]
    return min(finite or vals, key=lambda val: val["loss"])


def validation(vals: list[dict]) -> str:
    """The lowest loss on held-out text, and the last one."""
    if not vals:
        return ""
    best = lowest(vals)
    last = vals[-1]
    words = f"best {best['loss']:.4f}, after step {best['step']:,.0f}"
    words += f"; last {last['loss']:.4f}, after step {last['step']:,.0f}"
    return f"{words}; on {best['tokens']:,.0f} tokens each"
