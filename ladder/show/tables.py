"""A climb as a table: its cells, its layout on a terminal, and the notes below it."""

import statistics
from collections.abc import Callable
from textwrap import fill
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.log import percentiles
from ladder.measure.effective import differences
from ladder.measure.folder import OUT_OF_MEMORY, Climb
from ladder.measure.notes import title_of
from ladder.measure.rows import Results, Row, base_by_stem
from ladder.measure.stats import Estimate
from ladder.show import words
from ladder.show.console import new_table
from ladder.text import printable

# The columns in print and on a narrow terminal; where batch sizes are compared, memory too.
IN_PRINT = ["rung", "loss", "change", "time_to_loss", "ms", "rate", "gain"]
ALWAYS = ("rung", "ms")  # which say why a row without logs has none
WIDE = 130  # letters: a terminal with room for all
UNEVEN = 1.2  # the highest rate of a matmul over its lowest, from which on MFU means little
OTHERS = 0.25  # of the cores: what other programs may take during a run without a note


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    bold: bool = False


# ------------------------------------------------------------------ columns


class Column(NamedTuple):
    """A column of a climb's table."""

    heading: str  # empty: this kind of climb has none
    value: Callable[[Row], Any]  # that it shows of a row with logs; None: it has none
    text: Callable[[Any], str]  # of a value
    missing: Callable[[Row], str] = lambda row: ""  # stands where there is no value

    def cell(self, row: Row) -> Cell:
        """Its cell of a row; bold if it is a significant estimate."""
        value = self.value(row) if row.logs else None
        if value is None:
            return Cell(self.missing(row))
        return Cell(self.text(value), isinstance(value, Estimate) and value.significant)


def all_columns(results: Results) -> dict[str, Column]:
    """Every column that the table of a climb may have, by name, in order."""
    kind = results.climb.comparison
    to_loss = f"time to the loss of {results.rows[0].title}"
    return {
        "rung": Column("rung", lambda row: row.title, str, lambda row: row.title),
        "loss": Column("loss", lambda row: row.loss, "{:.4f}".format),
        "change": Column(kind.loss_heading, lambda row: row.loss_change, words.difference, dash),
        "time_to_loss": Column(to_loss, lambda row: row.time_to_loss, words.share, not_reached),
        "ms": Column("ms / step", lambda row: row.ms, "{:.1f}".format, lambda row: row.status),
        "rate": Column("tok/s", lambda row: row.tok_per_s, "{:.0f}".format),  # as in a log
        "gain": Column(kind.gain_heading, lambda row: row.gain, words.gain, dash),
        "total": Column(kind.total_heading, lambda row: row.total, words.gain, dash),
        "mfu": Column("MFU", lambda row: row.mfu, lambda part: words.percent(part, 1)),
        "roofline": Column("of roofline", share_of_roofline, words.percent),
        "memory": Column("memory", lambda row: row.peak_bytes, gigabytes),
        "first_step": Column("first step", first_step, "{:.1f} s".format),
    }


def columns(results: Results, narrow: bool = False) -> list[Column]:
    """The columns that have a value of some row; `narrow`: fewer of them."""
    names = [*IN_PRINT, "memory"] if results.climb.batch_sizes else IN_PRINT
    shown = []
    for name, column in all_columns(results).items():
        filled = any(column.value(row) is not None for row in results.ran)
        left_out = narrow and name not in names
        if column.heading and (filled or name in ALWAYS) and not left_out:
            shown.append(column)
    return shown


def dash(row: Row) -> str:
    """Where a row is compared with none."""
    return "–"


def not_reached(row: Row) -> str:
    """Where a row has no time to the loss of the first: it may have ended above it."""
    return "not reached" if row.total and row.loss_change else "–"


def share_of_roofline(row: Row) -> float | None:
    """The roofline of a step, as a part of the time it took."""
    return sum(row.roofline) / row.ms if row.roofline else None


def gigabytes(peak_bytes: int) -> str:
    """`12.34 GB`."""
    return f"{peak_bytes / 1e9:.2f} GB"


def first_step(row: Row) -> float:
    """Seconds of the first step, in which torch.compile works."""
    return row.log.steps[0].dt_ms / 1e3


# ------------------------------------------------------------------ layouts


def table(rows: list[Row], columns: list[Column]) -> list[list[Cell]]:
    """The headings, and below them the cells of each row."""
    lines = [[Cell(column.heading) for column in columns]]
    for row in rows:
        lines.append([column.cell(row) for column in columns])
    return lines


def for_terminal(results: Results, console: Console) -> Table:
    """The table for a terminal, all but its first column to the right."""
    shown_columns = columns(results, narrow=console.width < WIDE)
    header, *body = table(results.rows, shown_columns)
    shown = new_table(*(fill(cell.text, 18) for cell in header))
    for line in body:
        # As Text: a file name may hold [what] reads like markup.
        shown.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in line))
    return shown


def settings(results: Results) -> str:
    """Machine, versions and settings of a climb in one line."""
    climb = results.climb
    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    run = results.log.run | {"commit": ", ".join(climb.commits)}
    if climb.batch_sizes:
        run["B"] = f"{climb.batch_sizes[0]} to {climb.batch_sizes[-1]}"
    return text.format(**run)


def caption(results: Results) -> str:
    """The settings, and the machine's rates: of each the median of the rounds, and their range."""
    climb = results.climb

    def rate(name: str, unit: float) -> str:
        by_round = climb.rates[name]
        text = f"{climb.rate(name) / unit:.3g}"
        if len(by_round) > 1:
            text += f" ({min(by_round) / unit:.3g} to {max(by_round) / unit:.3g})"
        return text

    text = settings(results)
    text += f"; a large {climb.peak_dtype} matmul runs at {rate('peak_flops', 1e12)} TFLOP/s"
    if "copy_bytes_per_s" in climb.rates:
        if climb.peak_dtype != "float32":
            text += f", one in float32 at {rate('fp32_flops', 1e12)}"
        text += f"; a copy reads and writes {rate('copy_bytes_per_s', 1e9)} GB/s"
    if climb.quick:
        text += "; quick: few steps, so gains may be noise"
    return text


# ------------------------------------------------------------------ footnotes


def footnotes(results: Results) -> list[str]:
    """What has to be said below a table, in sentences."""
    climb = results.climb
    notes = []
    for row in results.rows:
        for k, why in row.failures.items():
            if why != OUT_OF_MEMORY:
                notes.append(f"Round {k} of {row.title} failed: {printable(why)}")
    for row in results.ran:
        for text in differences(row.logs.values()):
            notes.append(f"{row.title} ran {text}.")
        notes += disturbed_rounds(row)
    cores = climb.load_during or 0
    if climb.cores and cores > OTHERS * climb.cores:
        notes.append(
            f"Other programs took up to {cores:.1f} of {climb.cores:g} cores during a run: times "
            "may be too long, and gains mean less."
        )
    if climb.joined:
        notes.append("Its runs were joined from several climbs: compare losses, not times.")
    if any(row.mfu > 1 for row in results.ran):
        notes.append("MFU above 100 %: its peak or the times of the steps are wrong.")
    notes += about_peak(results.climb)
    return notes + about_bases(results) + about_losses(results)


def about_peak(climb: Climb) -> list[str]:
    """Whether a large matmul was as fast in all rounds: a CPU's MFU divides by it."""
    rates = climb.rates["peak_flops"]
    if climb.peak_dtype == "float32":  # up to 28 November 2026 it was timed twice a round
        rates = rates + climb.rates.get("fp32_flops", [])
    low, high = min(rates) / 1e12, max(rates) / 1e12
    if climb.device_type != "cpu" or high < UNEVEN * low:
        return []
    return [
        f"A large {climb.peak_dtype} matmul ran at {low:.3g} to {high:.3g} TFLOP/s: MFU and "
        "roofline divide by such rates, and mean little."
    ]


def disturbed_rounds(row: Row) -> list[str]:
    """The rounds that took over twice the median of their row, and those of which a tenth of the
    steps took over twice their own median."""
    notes = []
    usual = statistics.median(log.median_ms for log in row.logs.values())
    for k, log in row.logs.items():
        name = f"Round {k} of {row.title}"
        if log.throttled:
            notes.append(
                f"{name} was throttled {log.throttled} times: this run's share of the CPU was used "
                "up."
            )
        _, ms, slow = percentiles(log.step_times)
        twice = "more than twice"
        if ms > 2 * usual:
            notes.append(f"{name} took {ms:.1f} ms a step, {twice} the median of its row.")
        if slow > 2 * ms:
            notes.append(
                f"{name} was disturbed: a tenth of its steps took {slow:.1f} ms or more, {twice} "
                "its median."
            )
    return [f"{note} It is kept." for note in notes]


def about_bases(results: Results) -> list[str]:
    """The rows whose gain is not over the script that they are built on."""
    if results.climb.comparison.against != "previous":
        return []
    notes = []
    for row in results.ran:
        base = base_by_stem().get(row.stem)
        if base and row.gain and base != row.base.stem:
            notes.append(
                f"{row.title} is compared with {row.base.title}, not with {title_of(base)}, which "
                "it is built on."
            )
    return notes


def about_losses(results: Results) -> list[str]:
    """Whether the others reach the loss of the first row, and whether text was read again."""
    first = results.rows[0]
    if not first.loss:
        return []
    notes = []
    compared = any(row.total and row.loss_change for row in results.ran)
    if compared and not any(row.time_to_loss for row in results.ran):
        notes.append(f"The loss that {first.title} ends at is not reached by the others.")
    run = first.log.run
    if run["epoch_batches"] < run["steps"]:
        notes.append(
            f"The text ends after {run['epoch_batches']:g} steps and was read again: these losses "
            "may be lower than those on unseen text."
        )
    return notes
