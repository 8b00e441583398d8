"""The picture of a climb: tokens per second of each rung, or of a batch over B."""

from functools import partial
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.files import write_atomic
from ladder.measure.kinds import kind_of
from ladder.measure.rows import Row
from ladder.show.tables import caption, title_of, titles
from ladder.text import printable

matplotlib.rcdefaults()  # the same picture everywhere: text.usetex in a matplotlibrc needs LaTeX


def draw(climb: dict, rows: list[Row], path: Path) -> None:
    """Write a PNG, readable at the width of a README. Rows that failed have no bar."""
    good = [row for row in rows if not row.failure]
    axes = Figure(figsize=(9, 4.6), facecolor="white", layout="tight").subplots()
    if kind_of(climb).varied:
        lines(axes, good)
    else:
        bars(axes, good)
    axes.set_title(plain(caption(climb, good)), fontsize=7, loc="left", wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    write_atomic(path, partial(axes.figure.savefig, format="png", dpi=110))


def lines(axes: Axes, rows: list[Row]) -> None:
    """Tokens per second over B, a line for each rung, as far as memory holds it."""
    lines = {}
    for row in rows:
        sizes, rates = lines.setdefault(row.script, ([], []))
        sizes.append(row.B)
        rates.append(row.tok_per_s)
    for script, (sizes, rates) in lines.items():
        axes.plot(sizes, rates, "o-", label=plain(titles().get(script, script)))
    sizes = sorted({row.B for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_ylim(0)
    axes.set_xlabel("B, sequences in a batch")
    axes.set_ylabel("tokens per second")
    axes.legend(framealpha=1, edgecolor="white")


def bars(axes: Axes, rows: list[Row]) -> None:
    """Tokens per second of each row, with the spread of its steps."""
    for y, row in enumerate(rows):  # not by label: two scripts may have equal ones
        rate = row.tok_per_s
        slow, fast = row.spread
        spread = [[rate * (1 - slow)], [rate * (fast - 1)]]
        axes.barh(y, rate, xerr=spread, color="#4c78a8", ecolor="#333333", capsize=3)
        axes.annotate(f" {rate:,.0f}", (rate * fast, y), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [plain(title_of(row)) for row in rows])
    axes.set_xlim(0, max(row.tok_per_s for row in rows) * 1.12)
    axes.invert_yaxis()
    axes.set_xlabel("tokens per second, with the 10th to 90th percentile of the steps")


def plain(text: str) -> str:
    """`text` as matplotlib can draw it, with no formula: the name of a corpus may have a $."""
    return printable(text).replace("$", r"\$")
