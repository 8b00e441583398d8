"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import json
from pathlib import Path

import numpy as np

from ladder.corpus import cached_vocabulary, gpt2_vocabulary
from ladder.errors import BadInput
from ladder.log import read_log
from ladder.show.page import HERE, Scale, polyline
from ladder.show.sampling import load_model, sample
from ladder.text import printable

LOGS = "*_run-????????-??????-??????.log"  # as ladder.run names them, by date and time
PANELS = ("loss", "lr", "norm", "tok_per_s")
STRETCHES = 1000  # of a longer line, each with its lowest and its highest point


def training_section(paths: list[Path]) -> dict:
    """The section that compares these runs, each a log or a folder of checkpoints. Raises BadInput.

    A run without a step (--steps 0) is a line to beat: the held-out loss of a model.
    """
    runs = []
    references = json.loads(HERE.joinpath("references.json").read_text("utf-8"))
    for path in paths:
        run = gather_run(path)
        if run["steps"]:
            runs.append(run)
        elif run["vals"]:
            loss = run["vals"][0]["loss"]
            references.insert(0, {**run, "points": [[0, loss], [1e9, loss]]})
    if not runs:
        raise BadInput(f"{paths[0]} has no step to show yet")
    model = runs[0]["fields"]["model"]
    references = [reference for reference in references if reference["model"] == model]
    panels = []
    for axis in runs[0]["axes"]:
        for key in PANELS:
            if key in runs[0]["steps"][0]:
                panels.append(panel(runs, references, axis, key))
    return {
        "id": runs[0]["name"],
        "label": f"training {model} on {runs[0]['fields']['device']}",
        "runs": runs,
        "references": references,
        "panels": panels,
    }


def logs_of(folder: Path) -> list[Path]:
    """The logs that a folder of checkpoints keeps, oldest first."""
    return sorted(folder.glob(LOGS), key=lambda path: path.name.partition("-")[2])


def gather_run(path: Path) -> dict:
    """A run, whole, however often it was resumed: a later log replaces what it has again.

    `starts` says after which steps it began or went on, `axes` how far it was at the beginning and
    after each step: (steps + 1,) each.
    """
    steps = []
    vals = []
    starts = []
    for file in logs_of(path) or [path]:
        log = read_log(file, ended=False)
        if log.steps:
            log.steps[0]["first"] = True  # it compiles
            start = log.steps[0]["step"] - 1
            steps = until(start, steps) + log.steps
            vals = until(start, vals)
            starts = [*until(start - 1, starts), {"step": start, **log.run}]
        vals += log.vals
    fields = log.run
    tokens = int(fields.get("total_batch") or int(fields["B"]) * int(fields["T"]))
    done = np.append(0, column(steps, "step"))
    seconds = np.append(0, column(steps, "dt").cumsum())
    return {
        "name": path.resolve().name,
        "model": fields["model"],
        "fields": fields,
        "status": log.result.get("status", "under way, or killed"),
        "steps": steps,
        "vals": vals,
        "starts": starts,
        "axes": {"million tokens": done * tokens / 1e6, "steps": done, "hours": seconds / 3600},
        "window": 1 + len(steps) // 50,  # of the running mean
        "sample": sample_of(path),
    }


def until(step: int, rows: list[dict]) -> list[dict]:
    """Those rows that are not after `step`."""
    return [row for row in rows if row["step"] <= step]


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows])


def sample_of(folder: Path) -> str | None:
    """100 tokens by the best model in a folder, if it and GPT-2's vocabulary are there."""
    needed = [*cached_vocabulary(), folder / "best" / "model.safetensors"]
    if not all(path.exists() for path in needed):
        return None
    ids = sample(load_model(str(folder)), [], 100, seed=1337)
    return printable(gpt2_vocabulary().decode([*ids]), keep="\n\t")


def panel(runs: list[dict], references: list[dict], axis: str, key: str) -> dict:
    """One value of the step lines over one axis; the loss with all that it is compared with."""
    lines = []  # what it is, the number of its run, x, y
    marks = []
    for number, run in enumerate(runs):
        x = run["axes"][axis]
        y = column(run["steps"], key)
        lines.append(("thin", number, x[1:], y))
        marks += [*where(run, "starts", axis)[1:]]
        if key == "loss":
            window = run["window"]
            mean = np.convolve(y, np.ones(window) / window, "valid")
            lines.append(("mean", number, x[1 + window // 2 :][: len(mean)], mean))
            lines.append(("val", number, where(run, "vals", axis), column(run["vals"], key)))
    top = 100
    low = 0
    if key == "loss":
        run = runs[0]
        for number, reference in enumerate(references):
            points = np.array(reference["points"]).T
            y = np.interp(run["axes"]["million tokens"], *points, left=np.nan, right=np.nan)
            lines.append(("reference", number, run["axes"][axis], y))
    values = np.concatenate([y for *_, y in lines])
    values = values[np.isfinite(values)]
    if key == "loss":
        low = 0.98 * values.min()
    if key in ("loss", "norm"):
        top = 95  # per cent of the values: the first ones would fill the panel
    up = Scale(low, 1.05 * np.percentile(values, top))
    across = Scale(0, max(run["axes"][axis][-1] for run in runs))
    return {
        "axis": axis,
        "key": key,
        "across": across.ticks(5),
        "up": [(1 - at, text) for at, text in up.ticks(4)],
        "lines": [(kind, n, svg(across.at(x), up.at(y))) for kind, n, x, y in lines],
        "marks": [999 * across.at(mark) for mark in marks],
    }


def where(run: dict, rows: str, axis: str) -> np.ndarray:
    """Where on an axis these rows of a run are: (rows,)."""
    return np.interp(column(run[rows], "step"), run["axes"]["steps"], run["axes"][axis])


def svg(x: np.ndarray, y: np.ndarray) -> str:
    """A line's points as SVG writes them, if finite. A stall of one step stays visible."""
    curve = 999 * np.stack([x, 1 - y], axis=-1)[np.isfinite(y)]
    if len(curve) > 2 * STRETCHES:
        kept = []
        for part in np.array_split(np.arange(len(curve)), STRETCHES):
            heights = curve[part, 1]
            kept += sorted({part[heights.argmin()], part[heights.argmax()]})
        curve = curve[kept]
    return polyline(curve)
