"""A climb as a table: on screen with rich, in README.md and RUNLOG.md as Markdown."""

from rich.table import Table

from ladder.results import Gain, Row
from ladder.scripts import all_scripts, describe

COLUMNS = (
    "rung", "ms / step", "p10 – p90", "tok/s", "over the rung before", "over the first", "MFU",
    "memory", "first step", "first loss", "final loss",
)  # fmt: skip


def titles() -> dict[str, str]:
    """The title line of every script, by the stem of its file name."""
    return {path.stem: describe(path)["Title"].partition(":")[0] for path in all_scripts()}


def cells(row: Row, names: dict[str, str]) -> list[str]:
    """One row of COLUMNS as text."""
    name = names.get(row.stem, row.stem)
    if row.failure:
        return [name, f"failed: {row.failure}", *[""] * (len(COLUMNS) - 2)]
    first = next(iter(row.logs.values()))
    memory = f"{row.peak_bytes / 1e9:.2f} GB" if row.peak_bytes else "unknown"
    return [
        name,
        f"{row.median_ms:.1f}",
        f"{row.p10_ms:.1f} – {row.p90_ms:.1f}",
        f"{row.tok_per_s:.0f}",
        percent(row.gain, row),
        times(row.total),
        f"{row.mfu:.1%}" if row.mfu else "unknown",
        memory,
        f"{row.first_step_ms / 1e3:.1f} s",
        f"{first.result['first_loss']:.4f}",
        f"{row.final_loss:.4f}",
    ]


def percent(gain: Gain | None, row: Row) -> str:
    """`+12.3 % (10.1 … 14.6)`, `within noise (…)`, or `single run` where nothing was repeated."""
    if gain is None:
        return "single run" if len(row.logs) == 1 else "–"
    low, high = (f"{(bound - 1) * 100:+.1f}" for bound in (gain.low, gain.high))
    if gain.is_noise:
        return f"within noise ({low} … {high} %)".replace("-", "−")
    return f"{(gain.ratio - 1) * 100:+.1f} % ({low} … {high})".replace("-", "−")


def times(gain: Gain | None) -> str:
    """`1.84×`, or a dash where nothing was repeated."""
    return f"{gain.ratio:.2f}×" if gain else "–"


def markdown(rows: list[Row]) -> str:
    """The table in Markdown, numbers to the right."""
    names = titles()
    lines = [COLUMNS, ["---"] + ["---:"] * (len(COLUMNS) - 1), *(cells(row, names) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def screen(rows: list[Row], title: str) -> Table:
    """The table for a terminal."""
    table = Table(title=title, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "rung" else "right")
    names = titles()
    for row in rows:
        table.add_row(*cells(row, names))
    return table
