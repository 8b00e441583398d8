"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ladder.errors import UsageError
from ladder.log import Log, parse_log
from ladder.measure.folder import PACKED, log_texts
from ladder.measure.losses import running_mean
from ladder.measure.rows import step_tokens
from ladder.show.draw import Scale, Tick, color_of, svg
from ladder.show.measured import pairs

HERE = Path(__file__).parent
# A log as ladder.run names it, by date and time.
OF_A_RUN = re.compile(r"\w+_run-\d{8}-\d{6}-\d{6}")
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

    `done` says how far it was at the beginning and after each step, in `tokens`, `steps` and
    `seconds`: (steps + 1,) each.
    """

    path: Path  # of its log or folder
    fields: dict[str, str]  # of the last run line
    status: str | None
    steps: list[dict]
    starts: list[int]  # the first step of each log
    vals: list[dict]
    done: dict[str, np.ndarray]
    window: int  # of the running mean
    name: str = ""


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


@dataclass
class Line:
    """A line of a chart, or the same line in the legend, as SVG and CSS write it."""

    css_class: str  # thin, mean, val, mark or reference
    style: str
    text: str = ""  # in the legend, as are the next two
    source: str = ""
    url: str = ""
    points: str = "3,7 27,7"

    @property
    def dots(self) -> str:
        """A dot at each of its points."""
        return "".join(f"M{point}h0" for point in self.points.split())


@dataclass
class Panel:
    """A chart of one value over one axis."""

    key: str
    axis: Axis
    across: Scale
    up: Scale
    lines: list[tuple]  # what it is, the number of its run, x, y
    marks: list[float]  # where a run went on
    highest: float

    @property
    def caption(self) -> str:
        """What it shows."""
        words = LABELS[self.key]
        if self.key in WITH_AXIS:
            words += f", over {self.axis.name}"
        if self.highest > self.up.high:
            words += f"; cut off above, the highest is {self.highest:.4g}"
        return words

    @property
    def ticks(self) -> list[Tick]:
        """Those of the axis, where it is drawn."""
        return self.across.ticks(5) if self.key in WITH_AXIS else []

    @property
    def drawn(self) -> list[Line]:
        """The lines as the page draws them."""
        lines = []
        for css_class, k, x, y in self.lines:
            line = line_of(css_class, k)
            line.points = svg(self.across.at(x), self.up.at(y))
            lines.append(line)
        return lines


@dataclass
class TrainingSection:
    """The section of the page that compares training runs."""

    shows: ClassVar[str] = "training"
    id: str
    label: str
    headline: str
    axes: list[Axis]
    charts: list[Panel]
    legend: list[Line]
    runs: list[Run]
    left_out: list[str]  # logs without a step, and why


def training_section(paths: list[Path]) -> TrainingSection:
    """The section that compares the runs at these paths.

    A run without a step (--steps 0) is a line to beat: the held-out loss of a model. Raises
    UsageError.
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
        else:
            loss = run.vals[0]["loss"]
            text = f"{name}, before training on {run.fields['data']}"
            references.insert(0, Reference(text, run.fields["model"], [[0, loss], [1e9, loss]]))
    if not runs:
        raise UsageError("; ".join(left_out) or f"{paths[0]} has no step yet")
    fields = runs[0].fields
    references = [line for line in references if line.model == fields["model"]]
    headline = f"Training {fields['model']} on {fields['data']}"
    losses = [lowest(run.vals)["loss"] for run in runs if run.vals]
    if losses:
        headline += f": best validation loss {min(losses):.2f} nats a token"
    axes = axes_of(runs)
    return TrainingSection(
        id=runs[0].name,
        label=f"training {fields['model']} on {fields['device']}",
        headline=headline,
        axes=axes,
        charts=charts(runs, references, axes),
        legend=legend(runs, references),
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

    A file is one run, and so is a folder of checkpoints or published logs: it keeps the logs of
    one, however often that was resumed. Any other folder has a run in each of its logs. Raises
    UsageError if there is none.
    """
    is_packed = path.name.startswith(PACKED)
    if path.is_file() and not is_packed:
        return {path: {path: path.read_text("utf-8", "replace")}}
    folder = path.parent if is_packed else path
    texts = {folder / f"{name}.log": text for name, text in log_texts(folder).items()}
    of_one = {at: text for at, text in texts.items() if OF_A_RUN.fullmatch(at.stem)}
    if of_one:
        return {folder: of_one}
    if texts:
        return {at: {at: text} for at, text in texts.items()}
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    inside = {str(file.parent) for file in [*folder.glob("*/climb.json"), *folder.glob("*/*.log")]}
    which = f": name one of {', '.join(sorted(inside)[-5:])}" if inside else ""
    raise UsageError(f"{path} has no climb.json and no log of a run{which}")


def read_logs(texts: dict[Path, str]) -> tuple[list[Log], list[str]]:
    """The logs of a run in the order of the times in their names, and why others are left out."""
    logs = []
    left_out = []
    for path in sorted(texts, key=lambda path: path.name.partition("-")[2]):
        try:
            log = parse_log(texts[path], str(path), ended=False)
        except UsageError as error:
            left_out.append(str(error))
            continue
        if log.steps or log.vals:
            logs.append(log)
        else:
            left_out.append(f"{path} has no step")
    return logs, left_out


def gather_run(path: Path, logs: list[Log]) -> Run:
    """A run by its logs: a later log replaces what it has again."""
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
    fields = log.run
    done = np.append(0, column(steps, "step"))
    seconds = np.append(0, column(steps, "dt_ms").cumsum()) / 1e3
    return Run(
        path=path,
        fields=fields,
        status=log.result.get("status"),
        steps=steps,
        starts=starts,
        vals=vals,
        done={"tokens": done * step_tokens(log), "steps": done, "seconds": seconds},
        window=1 + len(steps) // 50,
    )


def axes_of(runs: list[Run]) -> list[Axis]:
    """The axes of the charts. Tokens are in a unit that suits the longest run."""
    tokens = Axis("million tokens", "tokens", 1e6)
    if max(run.done["tokens"][-1] for run in runs) < 1e6:
        tokens = Axis("thousand tokens", "tokens", 1e3)
    return [tokens, Axis("steps", "steps", 1), Axis("minutes", "seconds", 60)]


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows])


def panel(runs: list[Run], references: list[Reference], axis: Axis, key: str) -> Panel:
    """One value of the step lines over one axis; the loss with all that it is compared with."""
    lines = []
    marks = []
    for number, run in enumerate(runs):
        x = run.done[axis.key] / axis.unit
        y = column(run.steps, key)
        lines.append(("thin", number, x[1:], y))
        marks += np.interp(np.array(run.starts[1:]) - 1, run.done["steps"], x).tolist()
        if key == "loss":
            mean = running_mean(y, run.window)
            lines.append(("mean", number, x[1 + run.window // 2 :][: len(mean)], mean))
            at = np.interp(column(run.vals, "step"), run.done["steps"], x)
            lines.append(("val", number, at, column(run.vals, key)))
    if key == "loss":
        done = runs[0].done
        for number, line in enumerate(references):
            y = np.interp(done["tokens"] / 1e6, *np.array(line.points).T)
            lines.append(("reference", number, done[axis.key] / axis.unit, y))
    values = np.concatenate([y for *_, y in lines])
    values = values[np.isfinite(values)]
    if not len(values):
        values = np.zeros(1)
    # The first losses and norms would fill the panel.
    per_cent = 95 if key in ("loss", "norm") else 100
    return Panel(
        key=key,
        axis=axis,
        across=Scale(0, max(run.done[axis.key][-1] for run in runs) / axis.unit),
        up=Scale(
            0.98 * values.min() if key == "loss" else 0, 1.05 * np.percentile(values, per_cent)
        ),
        lines=lines,
        marks=marks,
        highest=values.max(),
    )


def charts(runs: list[Run], references: list[Reference], axes: list[Axis]) -> list[Panel]:
    """A chart of each value that all runs have, over each axis."""
    drawn = []
    for axis in axes:
        for key in LABELS:
            if all(key in run.steps[0] for run in runs):
                drawn.append(panel(runs, references, axis, key))
    return drawn


def line_of(css_class: str, k: int, text: str = "") -> Line:
    """How the line of the k-th run looks, or of the k-th reference."""
    style = color_of(k)
    if css_class == "reference":
        style = f"stroke-dasharray:{max(2, 8 - 3 * k)} 4"
    return Line(css_class, style, text)


def legend(runs: list[Run], references: list[Reference]) -> list[Line]:
    """What each line is; a run is named where there are several."""
    lines = []
    for k, run in enumerate(runs):
        name = f"{run.name}: " if len(runs) > 1 else ""
        each = f"mean of {run.window} steps (thin: each step)"
        if run.window == 1:
            each = "each step"
        lines.append(line_of("mean", k, f"{name}training loss, {each}"))
        if run.vals:
            lines.append(line_of("val", k, f"{name}validation loss, on held-out text"))
    if any(run.starts[1:] for run in runs):
        lines.append(Line("mark", "", "stopped and resumed here"))
    for k, reference in enumerate(references):
        line = line_of("reference", k, reference.name)
        line.source = reference.source
        line.url = reference.url
        if len(reference.points) == 2:
            line.text += f": {reference.points[0][1]:.4f}"
        lines.append(line)
    return lines


def facts(run: Run) -> list[tuple[str, str]]:
    """A run in words, by their headings; what is empty is not said."""
    steps = int(run.fields["steps"])
    last = run.steps[-1]["step"]
    tokens = run.done["tokens"][-1]
    passes = tokens / int(run.fields["tokens"])
    minutes = run.done["seconds"][-1] / 60
    dt_ms = statistics.median_high(step["dt_ms"] for step in run.steps)
    tok_per_s = statistics.median_high(step["tok_per_s"] for step in run.steps)
    resumed = ", ".join(f"{start - 1:,}" for start in run.starts[1:])
    ended = "all steps are done" if last >= steps else "under way, or killed"
    return [
        ("Validation", validation(run.vals)),
        (
            "Trained",
            f"{last:,} of {steps:,} steps, {tokens:,.0f} tokens, the text {passes:.2f} times; "
            f"{minutes:,.1f} minutes of steps",
        ),
        (
            "Speed",
            f"{tok_per_s:,.0f} tokens per second, {dt_ms:,.1f} ms a step (medians of all steps)",
        ),
        ("Resumed", f"went on after step {resumed}" if resumed else ""),
        ("Ended", run.status or ended),
        ("Run", pairs(run.fields)),
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
