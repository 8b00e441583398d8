"""A climb as a table: on screen with rich, in README.md and RUNLOG.md as Markdown."""

import re
import sys
from collections.abc import Callable
from functools import cache
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ladder.commands.kinds import kind_of
from ladder.commands.process import Screen
from ladder.commands.results import Gain, Row, first_log
from ladder.commands.scripts import all_scripts, chain, number_of, peer_scripts, title
from ladder.log import printable
from ladder.machine import busy

COLUMNS = (
    "rung", "ms / step", "p10 – p90", "tok/s", "gain", "total", "MFU", "of roofline", "memory",
    "first step", "first loss", "final loss",
)  # fmt: skip
NOT_ON_SCREEN = ("p10 – p90", "first loss")
EXTRA = "extra, CPU only"
# Bits of nvidia-smi's clocks_throttle_reasons.active, of nvml.h. A power limit is normal.
SLOWED_BY = {0x08: "its hardware's slowdown", 0x20: "heat", 0x40: "heat", 0x80: "a power brake"}
WHY_NOT_COMPILED = "is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?"


@cache
def titles() -> dict[str, str]:
    """The title line of every script, and of the top without it, by the stem of the file name."""
    found = {path.stem: title(path) for path in [*all_scripts(), *peer_scripts()]}
    return found | {f"without_{stem}": f"without {name}" for stem, name in found.items()}


def columns(facts: dict, rows: list[Row]) -> dict[str, str]:
    """The heading of each of COLUMNS: its name, or that of its gains in this kind of climb. Where
    no row has a roofline there is no column of it."""
    kind = kind_of(facts)
    found = dict(zip(COLUMNS, COLUMNS, strict=True)) | {"gain": kind.gain, "total": kind.total}
    if not any(row.roofline for row in rows):
        del found["of roofline"]
    return found


def cells(row: Row) -> dict[str, str]:
    """The text of each of COLUMNS; of a row that failed only why."""
    name = titles().get(row.stem, row.stem)
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
        "gain": percent(row.gain),
        "total": factor(row.total),
        "MFU": f"{row.mfu:.1%}" if row.mfu else "unknown",
        "of roofline": f"{sum(row.roofline) / row.ms:.0%}" if row.roofline else "unknown",
        "memory": f"{row.peak_bytes / 1e9:.2f} GB" if row.peak_bytes else "unknown",
        "first step": f"{first['first_step_ms'] / 1e3:.1f} s{warm}",
        "first loss": f"{first['first_loss']:.4f}",
        "final loss": f"{first['final_loss']:.4f}",
    }


def percent(gain: Gain | None) -> str:
    """`+12.3 % (+10.1 … +14.6)`, or `+12.3 % (2 rounds)`; `–` without a gain."""
    return with_interval(gain, lambda ratio: f"{(ratio - 1) * 100:+.1f}", " %")


def factor(gain: Gain | None) -> str:
    """`1.12× (1.10 … 1.15)`, or `1.12× (2 rounds)`; `–` without a gain."""
    return with_interval(gain, "{:.2f}".format, "×")


def with_interval(gain: Gain | None, text: Callable[[float], str], unit: str) -> str:
    """A gain and its interval, each ratio as `text` has it; below three rounds their number."""
    if gain is None:
        return "–"
    bounds = f"{gain.rounds} round{'s' * (gain.rounds > 1)}"
    if gain.low is not None:
        bounds = f"{text(gain.low)} … {text(gain.high)}"
    return f"{text(gain.ratio)}{unit} ({bounds})".replace("-", "−")


def first_beyond(facts: dict, rows: list[Row]) -> int | None:
    """Index of the first rung above ten, which are for CPUs, in a climb that has others before."""
    extra = {path.stem for path in all_scripts()[11:]}
    found = [i for i, row in enumerate(rows) if row.stem in extra]
    return found[0] if found and found[0] and kind_of(facts).against == "above" else None


def lines(facts: dict, rows: list[Row]) -> list[dict[str, str]]:
    """The cells of each row, with ** around what is bold: gains whose interval excludes zero."""
    found = [cells(row) for row in rows]
    for row, line in zip(rows, found, strict=True):
        for name, gain in (("gain", row.gain), ("total", row.total)):
            if gain and gain.significant:
                line[name] = f"**{line[name]}**"
    if (line := first_beyond(facts, rows)) is not None:
        found.insert(line, dict.fromkeys(COLUMNS, "") | {"rung": f"*{EXTRA}*"})
    return found


def markdown(facts: dict, rows: list[Row]) -> str:
    """The table in Markdown, numbers to the right."""
    shown = columns(facts, rows)
    texts = [[line[name] for name in shown] for line in lines(facts, rows)]
    below = "".join(f"\n{line}\n" for line in foot(facts, rows))
    return pipes([*shown.values()], texts) + below.replace("<", "&lt;")


def pipes(head: list[str], lines: list[list[str]], left: int = 1) -> str:
    """A Markdown table, all but its first `left` columns to the right; cells are no HTML."""
    found = [head, ["---"] * left + ["---:"] * (len(head) - left), *lines]
    plain = [[" ".join(cell.replace("|", r"\|").split()) for cell in line] for line in found]
    return "".join(f"| {' | '.join(line)} |\n" for line in plain).replace("<", "&lt;")


def foot(facts: dict, rows: list[Row]) -> list[str]:
    """What has to be said of a table: rounds that failed, rungs that were not compiled but should
    have been, and slow rounds, which count as all others do."""
    called, found = {row.stem: titles().get(row.stem, row.stem) for row in rows if row.logs}, []
    for name, why in facts.get("failures", {}).items():
        stem, _, k = name.rpartition(".r")
        if stem in called:
            line = f"Round {k} of {called[stem]} failed; its row and gains have the others only: "
            found.append(line + printable(" ".join(why.split())))
    if eager := [called[row.stem] for row in rows if not_compiled(row)]:
        found.append(f"Nothing was compiled in {', '.join(eager)}: {WHY_NOT_COMPILED}")
    for row in rows:
        for k, ms in row.slow_rounds.items():
            line = f"Round {k} of {called[row.stem]} took {ms:.1f} ms a step, more than twice "
            found.append(f"{line}the median of its row. It is kept.")
    return found


def not_compiled(row: Row) -> bool:
    """Whether a rung that calls torch.compile, from 05 on, has a log that says `compiled=no`."""
    eager = any(log.effective.get("compiled") == "no" for log in row.logs.values())
    return eager and row.stem in [path.stem for path in chain() if number_of(path) >= 5]


def screen(facts: dict, rows: list[Row], console: Console) -> Table:
    """The table for a terminal, with as many columns as fit its width."""
    heads = {k: head for k, head in columns(facts, rows).items() if k not in NOT_ON_SCREEN}
    shown = lines(facts, rows)
    for line in shown:  # why a row failed is told below the table
        line["ms / step"] = line["ms / step"].partition(":")[0]

    def draw(n: int) -> Table:
        table, names = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0)), list(heads)[:n]
        for name in names:
            width = max(18, *(len(line[name].strip("*")) for line in shown))
            left = "left" if name == "rung" else "right"
            table.add_column(fill(heads[name], width), justify=left)
        for line in shown:  # as Text: a file name may hold [what] reads like markup
            of = [(line[name].strip("*"), line[name].startswith("**")) for name in names]
            table.add_row(*(Text(text, "bold" * bold) for text, bold in of))
        return table

    return widest(console, draw, len(heads), 4)


def widest(console: Console, draw: Callable[[int], Table], most: int, least: int) -> Table:
    """draw(n), a table of n columns, with the largest n that fits the console, at least `least`."""
    options = console.options.update(width=10**4)
    while most > least and Measurement.get(console, options, draw(most)).maximum > console.width:
        most -= 1
    return draw(most)


def wide_console() -> Console:
    """The screen. A file or a pipe is 160 columns wide: it has no edge to wrap at.

    Names of files and kernels may hold [what] reads like markup.
    """
    width = None if sys.stdout.isatty() else 160
    return Screen(highlight=False, markup=False, width=width)


def doubts(facts: dict) -> list[str]:
    """What may have falsified the times: other programs, a peak that moved, throttling."""
    found = [busy(facts.get("load", 0), 0.75)]
    peaks = [peak / 1e12 for peak in facts.get("peaks") or []]
    if peaks and max(peaks) > 1.1 * min(peaks):
        found.append(
            f"a large matmul ran at {min(peaks):.3g} TFLOP/s in one round and {max(peaks):.3g} in "
            "another: the machine was busy or hot, and gains less than that mean little"
        )
    for when, text in facts["clocks"].items():
        bits = re.search(r"reasons\.active (0x[\da-fA-F]+)", text)
        why = {name for bit, name in SLOWED_BY.items() if bits and int(bits[1], 16) & bit}
        found.append(f"the GPU was slowed by {' and '.join(sorted(why))} ({when})" if why else None)
    return [line for line in found if line]


def caption(facts: dict, rows: list[Row]) -> str:
    """Machine and settings in one line."""
    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    text = text.format(**(run := first_log(rows).run))
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
    return text + "; quick: few steps and rounds" * bool(facts.get("quick"))
