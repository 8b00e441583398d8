"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ladder.corpus import cached_vocabulary, gpt2_vocabulary
from ladder.errors import UsageError
from ladder.log import Log, parse_log
from ladder.measure.climb import PACKED, log_texts
from ladder.measure.losses import running_mean
from ladder.show.draw import Scale, Tick, color_of, svg
from ladder.show.sampling import load_model, sample
from ladder.text import printable

HERE = Path(__file__).parent
OF_A_RUN = re.compile(
    r"\w+_run-\d{8}-\d{6}-\d{6}"
)  # a log as ladder.run names it, by date and time
# The values of the step lines that are drawn where all runs have them.
LABELS = {
    "loss": "loss, nats a token",
    "lr": "learning rate",
    "norm": "gradient norm, before clipping",
    "tok_per_s": "tokens per second",
}
WITH_AXIS = ("loss", "tok_per_s")  # those that stand above the ticks of the axis


@dataclass
class Run:
    """A run, whole, however often it was resumed.

    In `steps` the first of each log has its `ranks`. `done` says how far the run was at the
    beginning and after each step, in `tokens`, `steps` and `seconds`: (steps + 1,) each.
    """

    path: Path  # of its log or folder
    fields: dict[str, str]  # of the last run line
    status: str | None
    steps: list[dict]
    vals: list[dict]
    done: dict[str, np.ndarray]
    window: int  # of the running mean
    name: str = ""
    facts: list[tuple[str, str]] | None = (
        None  # in words by their headings; what is empty is not said
    )
    sample: str | None = None  # of its best model

    @property
    def starts(self) -> list[dict]:
        """The first step of each log."""
        return [step for step in self.steps if "ranks" in step]


@dataclass
class Axis:
    """What a chart is drawn over: one of `Run.done` in a unit."""

    name: str
    key: str
    unit: float


@dataclass
class Reference:
    """A line to beat: a loss over million tokens. Without a `url` it is measured on own text."""

    name: str
    model: str
    points: list[list[float]]
    source: str = ""
    url: str = ""
    data: str = ""


@dataclass
class Panel:
    """One value over one axis."""

    across: Scale
    up: Scale
    lines: list[tuple]  # what it is, the number of its run, x, y
    marks: list[float]  # where a run went on
    highest: float


@dataclass
class Line:
    """A line of a chart, and the same line in the legend, as SVG and CSS write it."""

    css_class: str  # thin, mean, val, mark or reference
    style: str
    text: str = ""  # in the legend, as are the next two
    source: str = ""
    url: str = ""
    points: str = "0,7 30,7"
    dots: str = "M15,7h0"


@dataclass
class Chart:
    """A panel as the page draws it."""

    key: str
    axis: int  # its number
    caption: str
    up: list[Tick]
    across: list[Tick]
    marks: list[str]
    lines: list[Line]


@dataclass
class TrainingSection:
    """The section of the page that compares training runs."""

    shows: ClassVar[str] = "training"
    id: str
    label: str
    headline: str
    axes: list[str]
    charts: list[Chart]
    legend: list[Line]
    has_references: bool
    in_order: bool  # whether a run reads its text in order
    runs: list[Run]
    left_out: list[str]  # logs without a step, and why


def training_section(paths: list[Path]) -> TrainingSection:
    """The section that compares the runs at these paths.

    Raises UsageError.
    A run without a step (--steps 0) is a line to beat: the held-out loss of a model.
    """
    found = []
    left_out = []
    for path in paths:
        for at, texts in find_runs(path).items():
            logs, without_steps = read_logs(texts)
            left_out += without_steps
            if logs:
                found.append(gather_run(at, logs))
    runs = []
    references = read_references()
    names = distinct_names([run.path for run in found])
    for run, name in zip(found, names, strict=True):
        run.name = name
        if run.steps:
            runs.append(run)
        elif run.vals:
            loss = run.vals[0]["loss"]
            fields = run.fields
            points = [[0, loss], [1e9, loss]]
            references.insert(0, Reference(name, fields["model"], points, data=fields["data"]))
    if not runs:
        raise UsageError("; ".join(left_out) or f"{paths[0]} has no step yet")
    fields = runs[0].fields
    references = [line for line in references if line.model == fields["model"]]
    headline = f"Training {fields['model']} on {fields['data']}"
    losses = [lowest(run.vals)["loss"] for run in runs if run.vals]
    if losses:
        headline += f": best validation loss {min(losses):.2f} nats a token"
    axes = axes_of(runs)
    for run in runs:
        run.facts = facts(run)
        run.sample = sample_of(run.path)
    return TrainingSection(
        id=runs[0].name,
        label=f"training {fields['model']} on {fields['device']}",
        headline=headline,
        axes=[axis.name for axis in axes],
        charts=charts(runs, references, axes),
        legend=legend(runs, references),
        has_references=bool(references),
        in_order=not all("shuffle" in run.fields for run in runs),
        runs=runs,
        left_out=left_out,
    )


def read_references() -> list[Reference]:
    """references.json: what others reported."""
    lines = json.loads(HERE.joinpath("references.json").read_text("utf-8"))
    return [Reference(**line) for line in lines]


def distinct_names(paths: list[Path]) -> list[str]:
    """The last part of each path, and as many before it as it takes to tell them apart."""
    paths = [path.resolve() for path in paths]
    count = 1
    while True:
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len({*names}) == len({*paths}):
            return names
        count += 1


def find_runs(path: Path) -> dict[Path, dict[Path, str]]:
    """The runs at a path: the texts of the logs of each.

    A file is one run, and a folder of checkpoints keeps the logs of one. What is published has them
    in runs.log, beside logs of other runs. Raises UsageError if there is none.
    """
    is_packed = path.name.startswith(PACKED)
    if path.is_file() and not is_packed:
        return {path: {path: path.read_text("utf-8", "replace")}}
    folder = path.parent if is_packed else path
    runs = {}
    for name, text in log_texts(folder).items():
        at = folder / f"{name}.log"
        if OF_A_RUN.fullmatch(name):
            runs.setdefault(folder, {})[at] = text
        elif not at.exists():
            runs[at] = {at: text}
    if runs:
        return runs
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    inside = {str(file.parent) for file in [*folder.glob("*/climb.json"), *folder.glob("*/*.log")]}
    which = f": name one of {', '.join(sorted(inside)[-5:])}" if inside else ""
    raise UsageError(f"{path} has no climb.json and no log of a run{which}")


def read_logs(texts: dict[Path, str]) -> tuple[list[Log], list[str]]:
    """The logs of a run in the order of their first steps, and why others are left out."""
    logs = []
    left_out = []
    for path, text in texts.items():
        try:
            log = parse_log(text, str(path), ended=False)
        except UsageError as error:
            left_out.append(str(error))
            continue
        if log.steps:
            logs.append((log.steps[0]["step"], path.name.partition("-")[2], log))
        elif log.vals:  # it had no step left to do
            logs.append((log.vals[-1]["step"] + 1, path.name.partition("-")[2], log))
        else:
            left_out.append(f"{path} has no step")
    logs.sort(key=lambda found: found[:2])  # not by time alone: a clock may be set back
    return [log for *_, log in logs], left_out


def gather_run(path: Path, logs: list[Log]) -> Run:
    """A run by its logs: a later log replaces what it has again."""
    steps = []
    vals = []
    for log in logs:
        if log.steps:
            first = log.steps[0]
            steps = [step for step in steps if step["step"] < first["step"]] + log.steps
            vals = [val for val in vals if val["step"] < first["step"]]
            first["ranks"] = log.run.get("ranks", "1")
        vals += log.vals
    fields = log.run
    done = np.append(0, column(steps, "step"))
    seconds = np.append(0, column(steps, "dt_ms").cumsum()) / 1e3
    return Run(
        path=path,
        fields=fields,
        status=log.result.get("status"),
        steps=steps,
        vals=vals,
        done={"tokens": done * step_tokens(fields), "steps": done, "seconds": seconds},
        window=1 + len(steps) // 50,
    )


def axes_of(runs: list[Run]) -> list[Axis]:
    """The axes of the charts, in units that suit the longest run."""
    tokens = Axis("million tokens", "tokens", 1e6)
    if max(run.done["tokens"][-1] for run in runs) < 1e6:
        tokens = Axis("thousand tokens", "tokens", 1e3)
    time = Axis("hours", "seconds", 3600)
    if max(run.done["seconds"][-1] for run in runs) < 3600:
        time = Axis("minutes", "seconds", 60)
    return [tokens, Axis("steps", "steps", 1), time]


def step_tokens(fields: dict[str, str]) -> int:
    """The tokens of a step, by a run line."""
    return int(fields.get("total_batch") or int(fields["B"]) * int(fields["T"]))


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows])


def sample_of(folder: Path) -> str | None:
    """100 tokens by the best model in a folder, if it and GPT-2's vocabulary are there."""
    if not folder.is_dir() or not cached_vocabulary():
        return None
    try:
        model = load_model(str(folder))
    except UsageError:  # there is no best/ yet
        return None
    ids = sample(model, [], 100, seed=1337)
    return printable(gpt2_vocabulary().decode([*ids]), keep="\n\t")


def panel(runs: list[Run], references: list[Reference], axis: Axis, key: str) -> Panel:
    """One value of the step lines over one axis; the loss with all that it is compared with."""
    lines = []
    marks = []
    for number, run in enumerate(runs):
        x = run.done[axis.key] / axis.unit
        y = column(run.steps, key)
        lines.append(("thin", number, x[1:], y))
        for index, step in enumerate(run.steps[1:], 1):
            if "ranks" in step:
                marks.append(x[index])
        if key == "loss":
            window = run.window
            mean = running_mean(y, window)
            lines.append(("mean", number, x[1 + window // 2 :][: len(mean)], mean))
            at = np.interp(column(run.vals, "step"), run.done["steps"], x)
            lines.append(("val", number, at, column(run.vals, key)))
    low = 0
    high = 100  # per cent of the values
    if key == "loss":
        done = runs[0].done
        for number, line in enumerate(references):
            y = np.interp(done["tokens"] / 1e6, *np.array(line.points).T)
            lines.append(("reference", number, done[axis.key] / axis.unit, y))
    values = np.concatenate([y for *_, y in lines])
    values = values[np.isfinite(values)]
    if not len(values):
        values = np.zeros(1)
    if key == "loss":
        low = 0.98 * values.min()
    if key in ("loss", "norm"):
        high = 95  # the first ones would fill the panel
    return Panel(
        across=Scale(0, max(run.done[axis.key][-1] for run in runs) / axis.unit),
        up=Scale(low, 1.05 * np.percentile(values, high)),
        lines=lines,
        marks=marks,
        highest=values.max(),
    )


def charts(runs: list[Run], references: list[Reference], axes: list[Axis]) -> list[Chart]:
    """A chart of each value that all runs have, over each axis."""
    drawn = []
    for number, axis in enumerate(axes, 1):
        for key, label in LABELS.items():
            if not all(key in run.steps[0] for run in runs):
                continue
            found = panel(runs, references, axis, key)
            caption = label
            if key in WITH_AXIS:
                caption += f", over {axis.name}"
            if found.highest > found.up.high:
                caption += f"; cut off above, the highest is {found.highest:.4g}"
            lines = []
            for css_class, k, x, y in found.lines:
                line = line_of(css_class, k, len(runs))
                line.points = svg(found.across.at(x), found.up.at(y))
                line.dots = "".join(f"M{point}h0" for point in line.points.split())
                lines.append(line)
            chart = Chart(
                key=key,
                axis=number,
                caption=caption,
                up=found.up.ticks(4, upright=True),
                across=found.across.ticks(5) if key in WITH_AXIS else [],
                marks=[f"M{999 * found.across.at(x):.1f},0v999" for x in found.marks],
                lines=lines,
            )
            drawn.append(chart)
    return drawn


def line_of(css_class: str, k: int, n: int) -> Line:
    """How the line of the k-th of n runs looks, or of the k-th reference."""
    if css_class == "reference":
        return Line(css_class, f"stroke-dasharray:{max(2, 8 - 3 * k)} 4")
    if css_class == "val" and n == 1:
        return Line(css_class, "--curve:var(--ink)")
    return Line(css_class, color_of(k))


def legend(runs: list[Run], references: list[Reference]) -> list[Line]:
    """What each line is; a run is named where there are several."""
    lines = []
    n = len(runs)
    for k, run in enumerate(runs):
        name = f"{run.name}: " if n > 1 else ""
        each = f"mean of {run.window} steps (thin: each step)"
        if run.window == 1:
            each = "each step"
        mean = line_of("mean", k, n)
        mean.text = f"{name}training loss, {each}"
        lines.append(mean)
        if run.vals:
            val = line_of("val", k, n)
            val.text = f"{name}validation loss, on held-out text"
            lines.append(val)
    if any(len(run.starts) > 1 for run in runs):
        lines.append(Line("mark", "", "stopped and resumed here"))
    for k, reference in enumerate(references):
        line = line_of("reference", k, n)
        line.text = reference.name
        line.source = reference.source
        line.url = reference.url
        loss = reference.points[0][1]
        if not reference.url:
            line.text += f": {loss:.4f} on held-out text of {reference.data}, before training"
        elif len(reference.points) == 2:
            line.text += f": {loss}"
        lines.append(line)
    return lines


def facts(run: Run) -> list[tuple[str, str]]:
    """A run in words, by their headings; what is empty is not said."""
    fields = run.fields
    last = run.steps[-1]
    tokens = run.done["tokens"][-1]
    hours = run.done["seconds"][-1] / 3600
    took = f"{hours:.2f} hours" if hours > 1 else f"{60 * hours:.1f} minutes"
    passes = tokens / int(fields["tokens"])
    trained = f"{last['step']:,} of {int(fields['steps']):,} steps, {tokens:,.0f} tokens"
    trained += f", the text {passes:.2f} times; {took} of steps"
    dt_ms = statistics.median_high(step["dt_ms"] for step in run.steps)
    tok_per_s = statistics.median_high(step["tok_per_s"] for step in run.steps)
    resumed = ", ".join(f"{start['step'] - 1:,}" for start in run.starts[1:])
    ended = run.status
    if not ended:
        is_done = last["step"] >= int(fields["steps"])
        ended = "all steps are done" if is_done else "under way, or killed"
    ranks = [start["ranks"] for start in run.starts]
    used = ", then ".join(ranks) if len({*ranks}) > 1 else ranks[0]
    batch = f"{step_tokens(fields)} tokens a step, B={fields['B']}, T={fields['T']}, ranks: {used}"
    text = f"{fields['data']}, {int(fields['tokens']):,} tokens"
    return [
        ("Validation", validation(run.vals)),
        ("Trained", trained),
        (
            "Speed",
            f"{tok_per_s:,.0f} tokens per second, {dt_ms:,.1f} ms a step (medians of all steps)",
        ),
        ("Resumed", f"went on after step {resumed}" if resumed else ""),
        ("Ended", ended),
        ("Model", f"{fields['model']}, {int(fields['params']):,} parameters"),
        ("Text", f"{text}, SHA-256 {fields.get('data_sha256')}…"),
        ("Batch", batch),
        ("Machine", f"{fields['device']}, PyTorch {fields['torch']}, Python {fields['python']}"),
        ("Code", f"{fields['script']} at commit {fields['commit']}, seed {fields.get('seed')}"),
    ]


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
        words += f"; last {last['loss']:.4f}, after step {last['step']:,.0f}: not lower since"
    else:
        words += ": the last one is the lowest"
    return f"{words}; on {best['tokens']:,.0f} tokens each"
