"""The picture of a climb: tokens per second of each rung, or of a batch over B."""

from functools import partial
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.files import write_atomic
from ladder.measure.kinds import kind_of
from ladder.measure.rows import OUT_OF_MEMORY, Row
from ladder.show.tables import caption, titles
from ladder.text import printable

matplotlib.rcdefaults()  # the same picture everywhere: text.usetex in a matplotlibrc needs LaTeX


def draw(facts: dict, rows: list[Row], path: Path) -> None:
    """Write a PNG, readable at the width of a README. Rows that failed have no bar."""
    good = [row for row in rows if not row.failure]
    axes = Figure(figsize=(9, 4.6), facecolor="white", layout="tight").subplots()
    if kind_of(facts).varied:
        lines(axes, rows, good)
    else:
        bars(axes, good)
    axes.set_title(plain(caption(facts, good)), fontsize=7, loc="left", wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    write_atomic(path, partial(axes.figure.savefig, format="png", dpi=110))


def lines(axes: Axes, rows: list[Row], good: list[Row]) -> None:
    """Tokens per second over B, a line for each rung; a cross where memory ends."""
    for script in dict.fromkeys(row.script for row in good):
        of = [row for row in good if row.script == script]
        sizes, rates = [row.B for row in of], [row.tok_per_s for row in of]
        (line,) = axes.plot(sizes, rates, "o-", label=plain(titles().get(script, script)))
        if any(row.failure == OUT_OF_MEMORY for row in rows if row.script == script):
            axes.plot(sizes[-1:], rates[-1:], "x", ms=14, mew=2, color=line.get_color())
    if any(row.failure == OUT_OF_MEMORY for row in rows):
        axes.plot([], [], "kx", ms=9, label="the next B is out of memory")
    sizes = sorted({row.B for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_ylim(0)
    axes.set_xlabel("B, sequences in a batch")
    axes.set_ylabel("tokens per second")
    axes.legend(framealpha=1, edgecolor="white")


def bars(axes: Axes, good: list[Row]) -> None:
    """Tokens per second of each row, with the spread of its steps."""
    rates = [row.tok_per_s for row in good]
    above = [row.tok_per_s * (row.spread[1] - 1) for row in good]
    below = [row.tok_per_s * (1 - row.spread[0]) for row in good]
    labels = [plain(titles().get(row.stem, row.stem.replace("_", " "))) for row in good]
    rows_at = range(len(good))  # not by label: two scripts may have equal ones
    axes.barh(rows_at, rates, xerr=[below, above], color="#4c78a8", ecolor="#333333", capsize=3)
    axes.set_yticks(rows_at, labels)
    for y, (rate, high) in enumerate(zip(rates, above, strict=True)):
        axes.annotate(f" {rate:,.0f}", (rate + high, y), va="center", fontsize=9)
    axes.set_xlim(0, max(rates) * 1.12)
    axes.invert_yaxis()
    axes.set_xlabel("tokens per second, with the 10th to 90th percentile of the steps")


def plain(text: str) -> str:
    """`text` as matplotlib can draw it, with no formula: the name of a corpus may have a $."""
    return printable(text).replace("$", r"\$")
