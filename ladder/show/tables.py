"""A climb as a table: on screen with rich, in README.md and RUNLOG.md as Markdown."""

import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.machine import find_gpu
from ladder.measure.docstrings import title
from ladder.measure.effective import differences
from ladder.measure.folder import OUT_OF_MEMORY, Climb
from ladder.measure.rows import (
    Row,
    base_by_stem,
    first_log,
    index_of_base,
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
NOT_REACHED = "not reached"
IN_PRINT = COLUMNS[:7]
NOTHING = {"", "–", "unknown", NOT_REACHED}  # of a column that has only these, a footnote says more
FEWEST = 4  # columns on a narrow screen
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


def columns(climb: Climb, rows: list[Row]) -> dict[str, str]:
    """The heading of each of COLUMNS that says something of a row."""
    comparison = climb.comparison
    names = {
        "gain": comparison.gain_heading,
        "total": comparison.total_heading,
        "loss_change": comparison.loss_heading,
        "time_to_loss": f"time to the loss of {name_of(rows[0])}",
    }
    headings = {}
    for name in COLUMNS:
        texts = {cells(row)[name].text for row in rows}
        if not texts <= NOTHING:
            headings[name] = names.get(name, name)
    return headings


def cells(row: Row, in_full=True) -> dict[str, Cell]:
    """Each of COLUMNS. A row without logs has only its status, `in_full` with why it failed."""
    line = dict.fromkeys(COLUMNS, Cell(""))
    line["rung"] = Cell(name_of(row))
    if not row.logs:
        line["ms / step"] = Cell(row.status_in_full if in_full else row.status)
        return line
    for name, text in figures(row).items():
        line[name] = Cell(text)
    line["gain"] = gain_cell(percent(row.gain), row.gain)
    line["total"] = gain_cell(factor(row.total), row.total)
    line["loss_change"] = gain_cell(loss_change(row.loss_change), row.loss_change)
    time_to_loss = factor(row.time_to_loss)
    if row.total and row.loss_change and not row.time_to_loss:
        time_to_loss = NOT_REACHED
    line["time_to_loss"] = gain_cell(time_to_loss, row.time_to_loss)
    return line


def figures(row: Row) -> dict[str, str]:
    """The columns that need no other row, of a row with logs."""
    first, last = row.log.steps[0], row.log.steps[-1]
    return {
        "loss": f"{row.loss:.4f}" if row.loss else "",
        "ms / step": f"{row.ms:.1f}",
        "tok/s": f"{row.tok_per_s:.0f}",
        "MFU": f"{row.mfu:.1%}",
        "of roofline": f"{sum(row.roofline) / row.ms:.0%}" if row.roofline else "unknown",
        "memory": f"{row.peak_bytes / 1e9:.2f} GB" if row.peak_bytes else "unknown",
        "first step": f"{first['dt_ms'] / 1e3:.1f} s",
        "final loss": f"{last['loss']:.4f}",
    }


def gain_cell(text: str, gain: Estimate | None) -> Cell:
    """`text`, bold if this gain survives Holm's correction."""
    return Cell(text, gain is not None and gain.significant)


def loss_change(change: Estimate | None) -> str:
    """`+0.123 (+0.101 … +0.146)` nats, or `no change (−0.001 … +0.000)`; `–` without one."""
    return with_interval(change, "{:+.3f}".format, "")


def percent(gain: Estimate | None) -> str:
    """`+12.3 % (+10.1 … +14.6)`, or `no change (2 rounds)`; `–` without a gain."""
    return with_interval(gain, lambda ratio: f"{(ratio - 1) * 100:+.1f}", " %")


def factor(gain: Estimate | None) -> str:
    """`1.12× (1.10 … 1.15)`, or `1.12× (2 rounds)`; `–` without a gain."""
    return with_interval(gain, "{:.2f}".format, "×")


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


def table(rows: list[Row], headings: dict[str, str], in_full=True) -> list[list[Cell]]:
    """The headings, and below them the cells of each row in these columns."""
    lines = [[Cell(heading) for heading in headings.values()]]
    for row in rows:
        line = cells(row, in_full)
        lines.append([line[name] for name in headings])
    return lines


def markdown(climb: Climb, rows: list[Row]) -> str:
    """The table in Markdown, numbers to the right, and what has to be said of it.

    It has few columns, which a page shows without a scroll bar: `ladder report` has them all.
    """
    if climb.batch_sizes:
        text = pipes(by_batch_size(rows))
    else:
        headings = columns(climb, rows)
        text = pipes(table(rows, {name: headings[name] for name in IN_PRINT if name in headings}))
    for line in footnotes(climb, rows):
        text += f"\n{line}\n".replace("<", "&lt;")
    return text


def pipes(lines: list[list[Cell]], left=1) -> str:
    """A Markdown table, all but its first `left` columns to the right. Cells are no HTML."""
    header, *body = lines
    ruler = [Cell("---")] * left + [Cell("---:")] * (len(header) - left)
    text = ""
    for line in [header, ruler, *body]:
        texts = []
        for cell in line:
            one_line = " ".join(cell.text.replace("|", r"\|").split())
            if "…" in one_line:  # an interval stays on one line
                one_line = one_line.replace(" ", "\N{NO-BREAK SPACE}")
            texts.append(f"**{one_line}**" if cell.bold else one_line)
        text += f"| {' | '.join(texts)} |\n"
    return text.replace("<", "&lt;")


def footnotes(climb: Climb, rows: list[Row]) -> list[str]:
    """What has to be said of a table: rounds that failed, rungs that ran something else than they
    declare, rounds that were disturbed, rows above their roofline, and text read twice."""
    good = [row for row in rows if row.logs]
    notes = []
    for row in good:
        for k, why in row.failures.items():
            note = f"Round {k} of {name_of(row)} failed; its row and gains have the others only"
            notes.append(f"{note}: {printable(why)}")
    for row in good:
        for text in differences(row.logs.values()):
            notes.append(f"{name_of(row)} ran {text}.")
        notes += disturbed_rounds(row)
    if any(row.roofline and sum(row.roofline) > row.ms for row in good):
        above = "Above 100 % of the roofline: caches spare the memory some of the bytes it counts."
        notes.append(above)
    notes += disturbances(climb, good) + gaps(climb, rows)
    shared = any(row.total and row.loss_change for row in good)  # else there is nothing to reach
    if shared and not any(row.time_to_loss for row in good):
        notes.append(f"The loss that {name_of(rows[0])} ends at is not reached by the others.")
    run = good[0].log.run if good else {}
    if good and good[0].loss and float(run["epoch_batches"]) < int(run["steps"]):
        note = f"The text ends after {run['epoch_batches']} steps and was read again: these "
        notes.append(f"{note}losses may be lower than those on unseen text.")
    return notes


def disturbed_rounds(row: Row) -> list[str]:
    """The rounds that took over twice the median of their row, and those of which a tenth of the
    steps took over twice their own median."""
    notes = []
    medians = {k: median_ms(log) for k, log in sorted(row.logs.items())}
    for k, ms in medians.items():
        name = f"Round {k} of {name_of(row)}"
        if ms > 2 * statistics.median(medians.values()):
            took = f"{name} took {ms:.1f} ms a step, more than twice the median of its row"
            notes.append(f"{took}. It is kept.")
        slow = np.percentile(step_times(row.logs[k]), 90)
        if slow > 2 * ms:
            took = f"{slow:.1f} ms or more, more than twice its median"
            notes.append(f"{name} was disturbed: a tenth of its steps took {took}. It is kept.")
    return notes


def disturbances(climb: Climb, good: list[Row]) -> list[str]:
    """What else ran on the machine, and an MFU that cannot be."""
    notes = []
    if climb.load_before > 0.75 * climb.cores:
        load = f"load {climb.load_before:.1f} on {climb.cores} core(s)"
        notes.append(f"Before the climb: {load} in the last minute.")
    cores = climb.load_during or 0
    if cores > OTHERS * climb.cores:
        note = f"Other programs took up to {cores:.1f} of {climb.cores} cores during a run: "
        notes.append(f"{note}times may be too long, and gains mean less.")
    if any(row.mfu > 1 for row in good):
        what = "the matmul that is its peak was disturbed"
        if find_gpu(good[0].log.run["device"]):
            what = "the data sheet is that of another card"
        notes.append(f"MFU above 100 %: {what}, or the times of the steps are wrong.")
    return notes


def gaps(climb: Climb, rows: list[Row]) -> list[str]:
    """The rows whose gain is over another script than the one that they go on from."""
    if climb.comparison.against != "previous":
        return []
    notes = []
    bases = base_by_stem()
    for path in climb.scripts:
        if "/" not in path:
            bases.pop(Path(path).stem, None)  # it is from outside
    for index, row in enumerate(rows):
        base = bases.get(row.stem)
        compared = rows[index_of_base(rows, index)]
        if row.gain and base and compared.stem != base.stem:
            goes_on = f"not with {title(base)}, which it goes on from"
            notes.append(f"{name_of(row)} is compared with {name_of(compared)}, {goes_on}.")
    return notes


def by_batch_size(rows: list[Row]) -> list[list[Cell]]:
    """The table of batch sizes: tok/s and memory of each script by B, and the largest B that it
    ran at."""
    scripts = {}
    for row in rows:
        scripts.setdefault(title_of(row), {})[row.B] = row
    sizes = sorted({row.B for row in rows})
    lines = [["", *(f"B={B}" for B in sizes), "largest B"]]
    for name, by_size in scripts.items():
        rates = [f"{name}, tok/s"]
        memory = ["memory, GB"]
        largest = 0
        for B in sizes:
            row = by_size.get(B)
            if row and row.logs:
                line = figures(row)
                rates.append(line["tok/s"])
                memory.append(line["memory"].removesuffix(" GB"))
                largest = B
            else:
                rates.append(row.status if row else "–")
                memory.append("")
        is_limit = by_size[max(by_size)].status == OUT_OF_MEMORY
        rates.append(f"{largest}" if is_limit else f"≥ {largest}")
        lines += [rates, [*memory, ""]]
    return [[Cell(text) for text in line] for line in lines]


def for_terminal(climb: Climb, rows: list[Row], console: Console) -> Table:
    """The table for a terminal, with as many columns as fit its width."""
    if climb.batch_sizes:
        return drawn(by_batch_size(rows))
    headings = columns(climb, rows)
    lines = table(rows, headings, in_full=False)  # a note below says why a row failed
    unbounded = console.options.update(width=10**4)
    others = []
    while True:
        shown = drawn([line[: len(headings)] for line in lines])
        fits = console.measure(shown, options=unbounded).maximum <= console.width
        if fits or len(headings) == FEWEST:
            break
        others.insert(0, headings.popitem()[1])
    if others:
        shown.caption = f"On a wider screen also: {', '.join(others)}."
    return shown


def drawn(lines: list[list[Cell]]) -> Table:
    """A table for a terminal, all but its first column to the right."""
    header, *body = lines
    headings = []
    for index, heading in enumerate(header):
        width = max([18, *(len(line[index].text) for line in body)])
        headings.append(fill(heading.text, width))
    shown = new_table(*headings)
    shown.caption_justify = "left"
    for line in body:
        # As Text: a file name may hold [what] reads like markup.
        shown.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in line))
    return shown


def warnings(climb: Climb) -> list[str]:
    """What may have falsified the times: a peak that moved."""
    peaks = climb.rates["peak_flops"]
    if max(peaks) <= 1.1 * min(peaks):
        return []
    return [
        f"a large matmul ran at {min(peaks) / 1e12:.3g} TFLOP/s in one round and "
        f"{max(peaks) / 1e12:.3g} in another: the machine was busy or hot, and gains less "
        "than that mean little"
    ]


def sizes(rows: list[Row]) -> str:
    """The B of these rows: `4`, or where batch sizes are compared `1 to 16`."""
    found = [int(log.run["B"]) for row in rows for log in row.logs.values()]
    smallest, largest = min(found), max(found)
    return f"{smallest}" if smallest == largest else f"{smallest} to {largest}"


def caption(climb: Climb, rows: list[Row]) -> str:
    """Machine and settings in one line. Of a rate the median of the rounds, and their range."""

    def rate(name: str, unit: float) -> str:
        by_round = climb.rates[name]
        text = f"{climb.rate(name) / unit:.3g}"
        if len(by_round) > 1:
            text += f" ({min(by_round) / unit:.3g} to {max(by_round) / unit:.3g})"
        return text

    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    text = text.format(**first_log(rows).run | {"B": sizes(rows)})
    text += f"; a large {climb.peak_dtype} matmul runs at {rate('peak_flops', 1e12)} TFLOP/s"
    if "copy_bytes_per_s" in climb.rates:
        if climb.peak_dtype != "float32":
            text += f", one in float32 at {rate('fp32_flops', 1e12)}"
        text += f"; a copy reads and writes {rate('copy_bytes_per_s', 1e9)} GB/s"
    if climb.quick:
        text += "; quick: few steps, so gains may be noise"
    return text
