"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import json
import re
import statistics
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup

from ladder.errors import UsageError
from ladder.log import Log, parse_log
from ladder.measure.climb import PACKED, log_texts
from ladder.measure.losses import running_mean
from ladder.measure.rows import step_tokens
from ladder.show.chart import CURVES, Chart, Picture, Scale
from ladder.show.page import Section, both, heading, join, pairs, paragraphs, terms

HERE = Path(__file__).parent
# A log as ladder.run names it, by date and time.
OF_A_RUN = re.compile(r"\w+_run-\d{8}-\d{6}-\d{6}")
# The values of the step lines that are drawn where all runs have them.
VALUES = {
    "loss": "loss, nats a token",
    "lr": "learning rate",
    "norm": "gradient norm, before clipping",
    "tok_per_s": "tokens a second",
}
CHARTS = [("loss", "tokens"), ("loss", "minutes")]
CHARTS += [("lr", "tokens"), ("norm", "tokens"), ("tok_per_s", "tokens")]
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
        return {folder: dict(sorted(of_one.items(), key=lambda log: log[0].partition("-")[2]))}
    if texts:
        return {folder / f"{name}.log": {name: text} for name, text in texts.items()}
    inside = {str(file.parent) for file in [*folder.glob("*/climb.json"), *folder.glob("*/*.log")]}
    which = f": name one of {', '.join(sorted(inside)[-5:])}" if inside else ""
    raise UsageError(f"{path} has no climb.json and no log of a run{which}")


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


def draw(runs: list[dict], references: list[dict], key: str, over: str, width: int) -> Picture:
    """One value of the step lines over `tokens` or `minutes`.

    The loss stands beside the validation loss, and beside the references over tokens.
    """
    picture = Picture(width, VALUES[key])
    longest = max(run[over][-1] for run in runs)
    unit = 1
    name = over
    if over == "tokens":
        unit, name = (1e6, "million tokens") if longest >= 1e6 else (1e3, "thousand tokens")
    if key == "loss" and over == "tokens":
        picture.legend(legend(runs))
    up = scale_of(runs, key)
    chart = Chart(picture, Scale(0, longest / unit), up, 240 if key == "loss" else 90)
    words = VALUES[key]
    highest = max(np.nanmax(finite(run, key)) for run in runs)
    if highest > up.high:
        words += f"; cut off above, the highest is {highest:.4g}"
    chart.axes(words, name)
    for k, run in enumerate(runs):
        draw_run(chart, run, k, key, run[over] / unit, len(runs) == 1)
    if key == "loss" and over == "tokens":
        for number, line in enumerate(references, 1):
            x, y = np.array(line["points"]).T  # million tokens, nats
            x = x * 1e6 / unit
            chart.line(x, y, "reported", 1.5, f"{max(2, 8 - 3 * number)} 4")
            at = chart.at(longest / unit, np.interp(longest / unit, x, y))
            picture.text(at[0], at[1] - 5, f"{number}", "reported", anchor="end")
    return picture


def draw_run(chart: Chart, run: dict, k: int, key: str, x: np.ndarray, alone: bool):
    """One value of the k-th run, over x; alone, each step and validation have other colours."""
    color = CURVES[k % len(CURVES)]
    y = column(run["steps"], key)
    if key != "loss":
        chart.line(x, y, color, 1)
    else:
        width = run["window"]
        mean = running_mean(y, width)
        if alone:
            chart.line(x, y, "faint", 1)
        chart.line(x[width // 2 :][: len(mean)], mean, color, 2)
        number = column(run["steps"], "step")
        at = np.interp(column(run["vals"], "step"), [0, *number], [0, *x])
        losses = column(run["vals"], "loss")
        val_color = "ink" if alone else color
        chart.line(at, losses, val_color, 1.5)
        for point in zip(at, losses, strict=True):
            if point[1] <= chart.up.high:
                chart.picture.dot(*chart.at(*point), val_color, radius=2)
    for start in run["starts"][1:]:
        resumed = np.interp(start - 1, column(run["steps"], "step"), x)
        chart.line([resumed, resumed], [chart.up.low, chart.up.high], "soft", 1, "4 3")
        if key == "loss":
            place = chart.at(resumed, chart.up.high)
            chart.picture.text(place[0] + 5, place[1] + 12, "stopped and resumed", "soft")


def finite(run: dict, key: str) -> np.ndarray:
    """The finite values of a run; a zero if there are none."""
    values = column(run["steps"], key)
    if key == "loss":
        values = np.append(values, column(run["vals"], "loss"))
    values = values[np.isfinite(values)]
    return values if len(values) else np.zeros(1)


def scale_of(runs: list[dict], key: str) -> Scale:
    """The scale of a value. The first losses and norms would fill the chart: they are cut off."""
    values = np.concatenate([finite(run, key) for run in runs])
    if key == "loss":
        return Scale(0.98 * values.min(), 1.05 * np.percentile(values, 95))
    return Scale(0, 1.05 * np.percentile(values, 95 if key == "norm" else 100))


def legend(runs: list[dict]) -> dict[str, str]:
    """What each colour is."""
    if len(runs) > 1:
        labels = {}
        for run, color in zip(runs, CURVES * len(runs), strict=False):
            labels[color] = f"{run['name']}: training loss, dots: validation"
        return labels
    labels = {"faint": "each step", "measured": f"mean of {runs[0]['window']} steps"}
    if runs[0]["vals"]:
        labels["ink"] = "validation, on held-out text"
    return labels


# ------------------------------------------------------------------ the section


def training_section(paths: list[Path]) -> tuple[Section, list[str]]:
    """The section that compares the runs at these paths, and the logs that are left out, and why.

    A run without a step (--steps 0) is a line to beat: the held-out loss of a model. Raises
    UsageError.
    """
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
    runs = [run for run in found if run["steps"]]
    if not runs:
        raise UsageError("; ".join(left_out) or f"{paths[0]} has no step yet")
    fields = runs[0]["fields"]
    references = references_of(found, fields["model"])
    parts = [references_html(references), paragraphs([READING], "soft")]
    for key, over in CHARTS:
        if all(key in run["steps"][0] for run in runs):
            parts.append(both(partial(draw, runs, references, key, over)))
    for run in runs:
        parts += [heading(run["name"]), terms(facts(run))]
    headline = f"Training {fields['model']} on {fields['data']}"
    losses = [lowest(run["vals"])["loss"] for run in runs if run["vals"]]
    if losses:
        headline += f": best validation loss {min(losses):.2f} nats a token"
    label = f"training {fields['model']} on {fields['device']}"
    return Section(runs[0]["name"], label, headline, join(parts)), left_out


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
        item = Markup("<li>{}").format(line["name"])
        if "url" in line:
            link = Markup(' (reported elsewhere: <a href="{}">{}</a>)')
            item += link.format(line["url"], line["source"])
        items.append(item)
    if not items:
        return Markup("")
    return Markup("<p>Dashed lines, which compare only roughly:</p><ol>{}</ol>").format(join(items))


def facts(run: dict) -> dict[str, str]:
    """A run in words, by their headings; what is empty is not said."""
    fields = run["fields"]
    steps = int(fields["steps"])
    last = run["steps"][-1]["step"]
    tokens = run["tokens"][-1]
    passes = tokens / int(fields["tokens"])
    ms = statistics.median(step["dt_ms"] for step in run["steps"])
    resumed = ", ".join(f"{start - 1:,}" for start in run["starts"][1:])
    ended = "all steps are done" if last >= steps else "under way, or killed"
    tok_per_s = run["step_tokens"] * 1e3 / ms
    trained = f"{last:,} of {steps:,} steps, {tokens:,.0f} tokens, the text {passes:.2f} times"
    return {
        "Validation": validation(run["vals"]),
        "Trained": f"{trained}; {run['minutes'][-1]:,.1f} minutes of steps",
        "Speed": f"{tok_per_s:,.0f} tokens a second, {ms:,.1f} ms a step (median)",
        "Resumed": f"went on after step {resumed}" if resumed else "",
        "Ended": run["status"] or ended,
        "Run": pairs(fields),
    }


def lowest(vals: list[dict]) -> dict:
    """The val line of the lowest loss; NaN is the highest."""
    return min(vals, key=lambda val: np.nan_to_num(val["loss"], nan=np.inf))


def validation(vals: list[dict]) -> str:
    """The lowest loss on held-out text, and whether it has risen since."""
    if not vals:
        return ""
    best = lowest(vals)
    last = vals[-1]
    words = f"best {best['loss']:.4f}, after step {best['step']:,.0f}"
    if best["step"] < last["step"]:
        words += f"; last {last['loss']:.4f}, after step {last['step']:,.0f}"
    return f"{words}; on {best['tokens']:,.0f} tokens each"
