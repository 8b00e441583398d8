"""Runs of ddp_run.py and fsdp_run.py as a section of the page: one curve each."""

import json
from functools import partial
from pathlib import Path

import numpy as np

from ladder.corpus import cached_vocabulary, gpt2_vocabulary
from ladder.errors import UsageError
from ladder.log import read_log
from ladder.measure.losses import running_mean
from ladder.show.page import HERE, Scale
from ladder.show.sampling import load_model, sample
from ladder.text import printable

LOGS = "*_run-????????-??????-??????.log"  # as ladder.run names them, by date and time


def training_section(paths: list[Path]) -> dict:
    """The section that compares these runs, each a log or a folder of checkpoints.

    Raises UsageError.
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
        raise UsageError(f"{paths[0]} has no step to show yet")
    fields = runs[0]["fields"]
    references = [line for line in references if line["fields"]["model"] == fields["model"]]
    return {
        "id": runs[0]["name"],
        "shows": "training",
        "label": f"training {fields['model']} on {fields['device']}",
        "runs": runs,
        "references": references,
        "panel": partial(panel, runs, references),
    }


def logs_of(folder: Path) -> list[Path]:
    """The logs that a folder of checkpoints keeps, oldest first."""
    return sorted(folder.glob(LOGS), key=lambda path: path.name.partition("-")[2])


def gather_run(path: Path) -> dict:
    """A run, whole, however often it was resumed: a later log replaces what it has again.

    In `steps` the first of each log has its `ranks`. `axes` say how far the run was at the
    beginning and after each step: (steps + 1,) each.
    """
    steps = []
    vals = []
    for file in logs_of(path) or [path]:
        log = read_log(file, ended=False)
        if log.steps:
            first = log.steps[0]
            steps = [step for step in steps if step["step"] < first["step"]] + log.steps
            vals = [val for val in vals if val["step"] < first["step"]]
            first["ranks"] = log.run.get("ranks", "1")
        vals += log.vals
    fields = log.run
    tokens = int(fields.get("total_batch") or int(fields["B"]) * int(fields["T"]))
    done = np.append(0, column(steps, "step"))
    ms = np.append(0, column(steps, "dt_ms").cumsum())
    return {
        "name": path.resolve().name,
        "fields": fields,
        "status": log.result.get("status"),
        "steps": steps,
        "vals": vals,
        "axes": {"million tokens": done * tokens / 1e6, "steps": done, "hours": ms / 3.6e6},
        "window": 1 + len(steps) // 50,  # of the running mean
        "sample": sample_of(path),
    }


def column(rows: list[dict], key: str) -> np.ndarray:
    """One value of all rows: (rows,)."""
    return np.array([row[key] for row in rows])


def sample_of(folder: Path) -> str | None:
    """100 tokens by the best model in a folder, if it and GPT-2's vocabulary are there."""
    if not cached_vocabulary():
        return None
    try:
        model = load_model(str(folder))
    except UsageError:  # a log, or there is no best/ yet
        return None
    ids = sample(model, [], 100, seed=1337)
    return printable(gpt2_vocabulary().decode([*ids]), keep="\n\t")


def panel(runs: list[dict], references: list[dict], axis: str, key: str) -> dict:
    """One value of the step lines over one axis; the loss with all that it is compared with."""
    lines = []  # what it is, the number of its run, x, y
    marks = []  # where a run went on
    for number, run in enumerate(runs):
        x = run["axes"][axis]
        y = column(run["steps"], key)
        lines.append(("thin", number, x[1:], y))
        for index, step in enumerate(run["steps"][1:], 1):
            if "ranks" in step:
                marks.append(x[index])
        if key == "loss":
            window = run["window"]
            mean = running_mean(y, window)
            lines.append(("mean", number, x[1 + window // 2 :][: len(mean)], mean))
            at = np.interp(column(run["vals"], "step"), run["axes"]["steps"], x)
            lines.append(("val", number, at, column(run["vals"], key)))
    low = 0
    high = 100  # per cent of the values
    if key == "loss":
        x = runs[0]["axes"]
        for number, line in enumerate(references):
            y = np.interp(x["million tokens"], *np.array(line["points"]).T)
            lines.append(("reference", number, x[axis], y))
    values = np.concatenate([y for *_, y in lines])
    values = values[np.isfinite(values)]
    if key == "loss":
        low = 0.98 * values.min()
    if key in ("loss", "norm"):
        high = 95  # the first ones would fill the panel
    return {
        "across": Scale(0, max(run["axes"][axis][-1] for run in runs)),
        "up": Scale(low, 1.05 * np.percentile(values, high)),
        "lines": lines,
        "marks": marks,
        "highest": values.max(),
    }
