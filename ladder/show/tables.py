"""A climb as a table: its cells, its layout on a terminal, and the notes below it."""

import statistics
from collections.abc import Callable
from functools import cache
from textwrap import fill
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.log import percentiles
from ladder.measure.docstrings import title
from ladder.measure.effective import differences
from ladder.measure.folder import OUT_OF_MEMORY, Climb
from ladder.measure.rows import (
    Row,
    base_by_stem,
    first_log,
    median_ms,
    step_times,
)
from ladder.measure.scripts import all_scripts, transformers_scripts
from ladder.measure.stats import Estimate
from ladder.show.console import new_table
from ladder.text import printable

COLUMNS = (
    "rung", "loss", "loss_change", "time_to_loss", "ms / step", "tok/s", "gain",
    "total", "MFU", "of roofline", "memory", "first step", "final loss",
)  # fmt: skip
# Those in print and on a narrow terminal.
IN_PRINT = COLUMNS[:7]
OF_BATCH_SIZES = ("rung", "ms / step", "tok/s", "memory")
WIDE = 130  # letters: a terminal with room for all
NOT_REACHED = "not reached"
NOTHING = {"", "–", NOT_REACHED}  # a column of these alone is left out
OTHERS = 0.25  # of the cores: what other programs may take during a run without a note


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    bold: bool = False


@cache
def titles() -> dict[str, str]:
    """The title of every rung, of the top rung without it, and of transformers', by file's stem."""
    names = {}
    for path in [*all_scripts(), *transformers_scripts()]:
        names[path.stem] = title(path)
        names[f"without_{path.stem}"] = f"without {title(path)}"
    return names


def title_of(row: Row) -> str:
    """The title of the row's script."""
    return titles().get(row.stem, row.stem)


def name_of(row: Row) -> str:
    """The title of the row's script; where batch sizes are compared, its B too."""
    return f"{title_of(row)}, B={row.B}" if row.B else title_of(row)


# ------------------------------------------------------------------ cells


def columns(climb: Climb, rows: list[Row], narrow=False) -> dict[str, str]:
    """The heading of each of COLUMNS that says something of a row; `narrow`: fewer of them."""
    names = COLUMNS
    if narrow:
        names = OF_BATCH_SIZES if climb.batch_sizes else IN_PRINT
    comparison = climb.comparison
    headings = {
        "gain": comparison.gain_heading,
        "total": comparison.total_heading,
        "loss_change": comparison.loss_heading,
        "time_to_loss": f"time to the loss of {name_of(rows[0])}",
    }
    shown = {}
    for name in names:
        texts = {cells(row)[name].text for row in rows}
        heading = headings.get(name, name)
        if heading and not texts <= NOTHING:
            shown[name] = heading
    return shown


def cells(row: Row) -> dict[str, Cell]:
    """Each of COLUMNS. A row without logs has only its status."""
    line = dict.fromkeys(COLUMNS, Cell(""))
    line["rung"] = Cell(name_of(row))
    texts = figures(row) if row.logs else {"ms / step": row.status}
    for name, text in texts.items():
        line[name] = Cell(text)
    for name, text in ESTIMATES.items():
        found = getattr(row, name)
        line[name] = Cell(text(found), bool(found and found.significant))
    if row.total and row.loss_change and not row.time_to_loss:
        line["time_to_loss"] = Cell(NOT_REACHED)
    return line


def figures(row: Row) -> dict[str, str]:
    """The columns that need no other row, of a row with logs."""
    first, last = row.log.steps[0], row.log.steps[-1]
    return {
        "loss": f"{row.loss:.4f}" if row.loss else "",
        "ms / step": f"{row.ms:.1f}",
        "tok/s": f"{row.tok_per_s:.0f}",
        "MFU": f"{row.mfu:.1%}",
        "of roofline": f"{sum(row.roofline) / row.ms:.0%}" if row.roofline else "",
        "memory": f"{row.peak_bytes / 1e9:.2f} GB" if row.peak_bytes else "",
        "first step": f"{first['dt_ms'] / 1e3:.1f} s",
        "final loss": "" if row.loss else f"{last['loss']:.4f}",
    }


def loss_change(change: Estimate | None) -> str:
    """`+0.123 (+0.101 … +0.146)` nats, or `no change (−0.001 … +0.000)`; `–` without one."""
    return with_interval(change, "{:+.3f}".format, "")


def percent(gain: Estimate | None) -> str:
    """`+12.3 % (+10.1 … +14.6)`, or `no change (2 rounds)`; from 2 up `2.61 times (2.13 … 3.19)`;
    `–` without a gain."""
    if gain and gain.value >= 2:
        return with_interval(gain, "{:.2f}".format, " times")
    return with_interval(gain, lambda ratio: f"{(ratio - 1) * 100:+.1f}", " %")


def factor(share: Estimate | None) -> str:
    """`0.62× (0.60 … 0.65)`, or `0.62× (2 rounds)`; `–` without one."""
    return with_interval(share, "{:.2f}".format, "×")


def with_interval(found: Estimate | None, text: Callable[[float], str], unit: str) -> str:
    """`+12.3 % (+10.1 … +14.6)`, each number written by `text`, or `+12.3 % (2 rounds)`."""
    if found is None:
        return "–"
    value = text(found.value)
    shown = f"{value}{unit}" if float(value) else "no change"
    certainty = "1 round" if found.rounds == 1 else f"{found.rounds} rounds"
    if found.low is not None:
        low, high = text(found.low), text(found.high)
        if float(low) == float(high) == 0:
            return shown
        certainty = f"{low} … {high}"
    return f"{shown} ({certainty})".replace("-", "−")


# The columns that are estimates, named as Row's.
ESTIMATES = {"gain": percent, "total": percent, "loss_change": loss_change, "time_to_loss": factor}

# ------------------------------------------------------------------ layouts


def table(rows: list[Row], headings: dict[str, str]) -> list[list[Cell]]:
    """The headings, and below them the cells of each row in these columns."""
    lines = [[Cell(heading) for heading in headings.values()]]
    for row in rows:
        line = cells(row)
        lines.append([line[name] for name in headings])
    return lines


def for_terminal(climb: Climb, rows: list[Row], console: Console) -> Table:
    """The table for a terminal, all but its first column to the right."""
    header, *body = table(rows, columns(climb, rows, narrow=console.width < WIDE))
    shown = new_table(*(fill(cell.text, 18) for cell in header))
    for line in body:
        # As Text: a file name may hold [what] reads like markup.
        shown.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in line))
    return shown


def caption(climb: Climb, rows: list[Row]) -> str:
    """Machine and settings in one line. Of a rate the median of the rounds, and their range."""

    def rate(name: str, unit: float) -> str:
        by_round = climb.rates[name]
        text = f"{climb.rate(name) / unit:.3g}"
        if len(by_round) > 1:
            text += f" ({min(by_round) / unit:.3g} to {max(by_round) / unit:.3g})"
        return text

    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    run = dict(first_log(rows).run)
    if climb.joined:
        run["commit"] = ", ".join(climb.joined)
    if climb.batch_sizes:
        run["B"] = f"{climb.batch_sizes[0]} to {climb.batch_sizes[-1]}"
    text = text.format(**run)
    text += f"; a large {climb.peak_dtype} matmul runs at {rate('peak_flops', 1e12)} TFLOP/s"
    if "copy_bytes_per_s" in climb.rates:
        if climb.peak_dtype != "float32":
            text += f", one in float32 at {rate('fp32_flops', 1e12)}"
        text += f"; a copy reads and writes {rate('copy_bytes_per_s', 1e9)} GB/s"
    if climb.quick:
        text += "; quick: few steps, so gains may be noise"
    return text


# ------------------------------------------------------------------ footnotes


def footnotes(climb: Climb, rows: list[Row]) -> list[str]:
    """What has to be said below a table, in sentences."""
    notes = []
    good = [row for row in rows if row.logs]
    for row in rows:
        for k, why in row.failures.items():
            if why != OUT_OF_MEMORY:
                notes.append(f"Round {k} of {name_of(row)} failed: {printable(why)}")
    for row in good:
        for text in differences(row.logs.values()):
            notes.append(f"{name_of(row)} ran {text}.")
        notes += disturbed_rounds(row)
    cores = climb.load_during or 0
    if cores > OTHERS * climb.cores:
        took = f"Other programs took up to {cores:.1f} of {climb.cores:g} cores during a run"
        notes.append(f"{took}: times may be too long, and gains mean less.")
    if climb.joined:
        notes.append("Its runs were joined from several climbs: compare losses, not times.")
    if any(row.mfu > 1 for row in good):
        notes.append("MFU above 100 %: its peak or the times of the steps are wrong.")
    return notes + about_bases(climb, good) + about_losses(rows[0], good)


def disturbed_rounds(row: Row) -> list[str]:
    """The rounds that took over twice the median of their row, and those of which a tenth of the
    steps took over twice their own median."""
    notes = []
    usual = statistics.median(map(median_ms, row.logs.values()))
    for k, log in row.logs.items():
        name = f"Round {k} of {name_of(row)}"
        for note in log.notes:
            if note.startswith("throttled"):
                notes.append(f"{name} was {note}.")
        _, ms, slow = percentiles(step_times(log))
        twice = "more than twice"
        if ms > 2 * usual:
            notes.append(f"{name} took {ms:.1f} ms a step, {twice} the median of its row.")
        if slow > 2 * ms:
            took = f"a tenth of its steps took {slow:.1f} ms or more, {twice} its median"
            notes.append(f"{name} was disturbed: {took}.")
    return [f"{note} It is kept." for note in notes]


def about_bases(climb: Climb, rows: list[Row]) -> list[str]:
    """The rows whose gain is not over the script that they are built on."""
    if climb.comparison.against != "previous":
        return []
    notes = []
    for row in rows:
        base = base_by_stem().get(row.stem)
        if base and row.gain and base != row.base.stem:
            but = f"not with {titles().get(base, base)}, which it is built on"
            notes.append(f"{name_of(row)} is compared with {name_of(row.base)}, {but}.")
    return notes


def about_losses(first: Row, good: list[Row]) -> list[str]:
    """Whether the others reach the loss of the first row, and whether text was read again."""
    if not first.loss:
        return []
    notes = []
    compared = any(row.total and row.loss_change for row in good)
    if compared and not any(row.time_to_loss for row in good):
        notes.append(f"The loss that {name_of(first)} ends at is not reached by the others.")
    run = first.log.run
    if float(run["epoch_batches"]) < int(run["steps"]):
        note = f"The text ends after {run['epoch_batches']} steps and was read again: these "
        notes.append(f"{note}losses may be lower than those on unseen text.")
    return notes
