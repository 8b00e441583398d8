"""A climb as a table: on screen with rich, in README.md and RUNLOG.md as Markdown."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ladder.commands.kinds import kind_of
from ladder.commands.process import Screen
from ladder.commands.results import LEAST_ROUNDS, Gain, Row, first_log
from ladder.commands.scripts import all_scripts, chain, number_of, peer_scripts, title
from ladder.log import printable
from ladder.machine import busy

COLUMNS = (
    "rung", "ms / step", "p10 – p90", "tok/s", "gain", "total", "MFU", "of its limit", "memory",
    "first step", "first loss", "final loss",
)  # fmt: skip
# A terminal shows the others. Where it is too narrow the last ones go, but never the first four.
NOT_ON_SCREEN = ("p10 – p90", "first loss")
TOO_WIDE = 25  # per cent to either side: bounds that say nothing
# Bits of nvidia-smi's clocks_throttle_reasons.active, of nvml.h, that make a GPU slower.
SLOWED_BY = {
    0x04: "its power limit", 0x08: "its hardware's slowdown", 0x20: "heat", 0x40: "heat",
    0x80: "a power brake",
}  # fmt: skip
BEYOND = "*beyond the ten*"
WHY_NOT_COMPILED = "is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?"


@cache
def titles() -> dict[str, str]:
    """The title line of every script, and of the top without it, by the stem of the file name."""
    found = {path.stem: title(path) for path in [*all_scripts(), *peer_scripts()]}
    return found | {f"without_{stem}": f"without {name}" for stem, name in found.items()}


def columns(facts: dict, rows: list[Row]) -> dict[str, str]:
    """The heading of each of COLUMNS: its own name, but gains are named for what they are in this
    kind of climb. Where no row has a limit there is no column of limits."""
    kind = kind_of(facts)
    found = dict(zip(COLUMNS, COLUMNS, strict=True)) | {"gain": kind.gain, "total": kind.total}
    if not any(row.limit for row in rows):
        del found["of its limit"]
    return found


def cells(row: Row) -> dict[str, str]:
    """The text of each of COLUMNS; of a row that failed only why."""
    name = titles().get(row.stem, row.stem) + (f", B={row.own_B}" if row.own_B else "")
    if row.failure:
        return dict.fromkeys(COLUMNS, "") | {"rung": name, "ms / step": f"failed: {row.failure}"}
    first = row.log.result
    # It found all its graphs in the compile cache: no time to compile.
    warm = " warm" if row.log.effective.get("compile_cache") == "warm" else ""
    return {
        "rung": name,
        "ms / step": f"{row.ms:.1f}",
        "p10 – p90": f"{row.p10_ms:.1f} – {row.p90_ms:.1f}",
        "tok/s": f"{row.tok_per_s:.0f}",
        "gain": percent(row.gain, row),
        "total": f"{row.total.ratio:.2f}×" if row.total else "–",
        "MFU": f"{row.mfu:.1%}" if row.mfu else "unknown",
        "of its limit": f"{sum(row.limit) / row.ms:.0%}" if row.limit else "unknown",
        "memory": f"{row.peak_bytes / 1e9:.2f} GB" if row.peak_bytes else "unknown",
        "first step": f"{first['first_step_ms'] / 1e3:.1f} s{warm}",
        "first loss": f"{first['first_loss']:.4f}",
        "final loss": f"{first['final_loss']:.4f}",
    }


def percent(gain: Gain | None, row: Row) -> str:
    """`+12.3 % (10.1 … 14.6)` or `within noise (…)`; `single run` or `too few rounds (2): …` where
    the rounds say nothing yet."""
    if gain is None:
        return "single run" if len(row.logs) == 1 else "–"
    if gain.is_noise and gain.rounds < LEAST_ROUNDS and gain.width > TOO_WIDE:
        return f"too few rounds ({gain.rounds}): --repeats {LEAST_ROUNDS}"
    low, high = (f"{(bound - 1) * 100:+.1f}" for bound in (gain.low, gain.high))
    if gain.is_noise:
        return f"within noise ({low} … {high} %)".replace("-", "−")
    return f"{(gain.ratio - 1) * 100:+.1f} % ({low} … {high})".replace("-", "−")


def first_beyond(facts: dict, rows: list[Row]) -> int | None:
    """Index of the first rung above ten in a climb that has one of the ten before it."""
    found = [i for i, row in enumerate(rows) if number_of(Path(row.stem)) > 10]
    return found[0] if found and found[0] and kind_of(facts).against == "above" else None


def lines(facts: dict, rows: list[Row]) -> list[dict[str, str]]:
    """The cells of each row, and before the rungs above ten a line that says so."""
    found = [cells(row) for row in rows]
    if (line := first_beyond(facts, rows)) is not None:
        found.insert(line, dict.fromkeys(COLUMNS, "") | {"rung": BEYOND})
    return found


def markdown(facts: dict, rows: list[Row], shown: dict[str, str] | None = None) -> str:
    """The table in Markdown, numbers to the right; `shown` has the heading of each column."""
    shown = shown or columns(facts, rows)
    texts = [[line[column] for column in shown] for line in lines(facts, rows)]
    below = (line.replace("<", "&lt;") for line in foot(facts, rows))
    return pipes([*shown.values()], texts) + "".join(f"\n{line}\n" for line in below)


def pipes(head: list[str], lines: list[list[str]], left: int = 1) -> str:
    """A Markdown table, all but its first `left` columns to the right; cells are no HTML."""
    lines = [head, ["---"] * left + ["---:"] * (len(head) - left), *lines]
    lines = [
        [" ".join(c.replace("|", r"\|").replace("<", "&lt;").split()) for c in line]
        for line in lines
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def foot(facts: dict, rows: list[Row]) -> list[str]:
    """What has to be said of a table: rounds that failed, and are in no number, rounds that stand
    apart, and count as all others do, and rungs that should have been compiled and were not."""
    names = titles()
    called = {row.stem: names.get(row.stem, row.stem) for row in rows if row.logs}
    runs = ((*name.rpartition(".r")[::2], why) for name, why in facts.get("failures", {}).items())
    failed = [
        f"Round {k} of {called[stem]} failed; its row and gains have the others only: "
        + printable(" ".join(why.split()))
        for stem, k, why in runs
        if stem in called
    ]
    if eager := [called[row.stem] for row in rows if not_compiled(row)]:
        failed.append(f"Nothing was compiled in {', '.join(eager)}: {WHY_NOT_COMPILED}")
    return failed + [
        f"Round {k} of {called[row.stem]} took {ms:.1f} ms a step, more than twice "
        "the median of its row. It is kept."
        for row in rows
        for k, ms in row.apart.items()
    ]


def not_compiled(row: Row) -> bool:
    """Whether a rung that calls torch.compile, from 05 on, has a log that says `compiled=no`."""
    eager = any(log.effective.get("compiled") == "no" for log in row.logs.values())
    return eager and row.stem in [path.stem for path in chain() if number_of(path) >= 5]


def screen(facts: dict, rows: list[Row], console: Console) -> Table:
    """The table for a terminal, with as many columns as stand there whole."""
    heads = {k: head for k, head in columns(facts, rows).items() if k not in NOT_ON_SCREEN}
    shown = lines(facts, rows)
    for line in shown:
        if line["ms / step"].startswith("failed: "):  # why is told below the table
            line["ms / step"] = "failed"

    def draw(n: int) -> Table:
        table = Table(box=SIMPLE_HEAD, padding=(0, int(n > 4), 0, 0))
        for name in list(heads)[:n]:
            width = max(18, *(len(line[name]) for line in shown))
            left = "left" if name == "rung" else "right"
            table.add_column(fill(heads[name], width), justify=left)
        for line in shown:
            style = "italic" if line["rung"] == BEYOND else ""
            # Text: a file name may hold [what] reads like markup.
            table.add_row(*(Text(line[name].strip("*"), style) for name in list(heads)[:n]))
        return table

    return whole(console, draw, len(heads), 4)


def whole(console: Console, draw: Callable[[int], Table], most: int, least: int) -> Table:
    """draw(n) with the largest n, from `most` to `least`, that the console does not wrap."""
    options = console.options.update(width=10**4)
    for n in range(most, least, -1):
        if Measurement.get(console, options, table := draw(n)).maximum <= console.width:
            return table
    return draw(least)


def wide_console(**options) -> Console:
    """The screen. A file or a pipe is 160 columns wide: it has no edge to wrap at.

    Names of files and kernels may hold [what] reads like markup.
    """
    console = Screen(highlight=False, markup=False, **options)
    if not console.is_terminal:
        console.width = 160
    return console


def doubts(facts: dict) -> list[str]:
    """What may have falsified the times: other programs, a peak that moved, throttling."""
    found = [busy(facts.get("load", 0), 0.75)]
    peaks = [peak / 1e12 for peak in facts.get("peaks") or []]
    if peaks and max(peaks) > 1.1 * min(peaks):
        found.append(
            f"a large matmul ran at {min(peaks):.3g} TFLOP/s in one round and {max(peaks):.3g} in "
            "another: the machine was busy or hot, and gains less than that mean little"
        )
    for when, clocks in facts["clocks"].items():
        bits = re.search(r"reasons\.active (0x[\da-fA-F]+)", clocks)
        why = {name for bit, name in SLOWED_BY.items() if bits and int(bits[1], 16) & bit}
        found.append(f"the GPU was slowed by {' and '.join(sorted(why))} ({when})" if why else None)
    return [line for line in found if line]


def caption(facts: dict, rows: list[Row]) -> str:
    """Machine and settings in one line."""
    run = first_log(rows).run
    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    text = text.format(**run | ({"B": "its own"} if kind_of(facts).own_batch else {}))
    if facts.get("peak_flops"):
        rate = facts["peak_flops"] / 1e12
        text += f"; a large {facts.get('peak_dtype')} matmul runs at {rate:.3g} TFLOP/s"
        if len(peaks := facts.get("peaks") or []) > 1:
            text += f" ({min(peaks) / 1e12:.3g} to {max(peaks) / 1e12:.3g})"
    if facts.get("copy_bytes_per_s"):
        text += f", one in float32 at {facts['fp32_flops'] / 1e12:.3g}; "
        text += f"a copy reads and writes {facts['copy_bytes_per_s'] / 1e9:.1f} GB/s"
    if int(run["steps"]) < 3:
        text += "; not a measurement: the first two steps of a run are warm-up"
    if facts.get("quick"):
        text += "; quick: few steps and rounds"
    return text
