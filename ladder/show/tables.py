"""A climb as a table: on screen with rich, in README.md and RUNLOG.md as Markdown."""

import re
from collections.abc import Callable
from functools import cache
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ladder.measure.kinds import kind_of
from ladder.measure.process import busy
from ladder.measure.rows import (
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    WHY_NOT_COMPILED,
    Row,
    first_log,
    not_compiled,
    sizes_with_gains,
)
from ladder.measure.scripts import all_scripts, peer_scripts, title
from ladder.measure.stats import Gain
from ladder.text import printable

COLUMNS = (
    "rung", "ms / step", "p10 – p90", "tok/s", "gain", "total", "MFU", "of roofline", "memory",
    "first step", "first loss", "final loss",
)  # fmt: skip
NOT_ON_SCREEN = ("p10 – p90", "first loss")
EXTRA = "extra, CPU only"
# Bits of nvidia-smi's clocks_throttle_reasons.active, of nvml.h. A power limit is normal at
# full load: it is named only where another reading found a higher clock.
SLOWED_BY = {0x08: "its hardware's slowdown", 0x20: "heat", 0x40: "heat", 0x80: "a power brake"}
POWER_LIMIT = {0x04: "its power limit"}


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


def name_of(row: Row) -> str:
    """The title of its script, and of a batch its B."""
    return titles().get(row.script, row.script) + (f", B={row.B}" if row.B else "")


def cells(row: Row) -> dict[str, str]:
    """The text of each of COLUMNS; of a row that failed only why."""
    name = name_of(row)
    if row.failure:
        why = (
            row.failure if row.failure in (OUT_OF_MEMORY, OUT_OF_TIME) else f"failed: {row.failure}"
        )
        return dict.fromkeys(COLUMNS, "") | {"rung": name, "ms / step": why}
    first = row.log.result
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
        "first step": f"{first['first_step_ms'] / 1e3:.1f} s",
        "first loss": f"{first['first_loss']:.4f}",
        "final loss": f"{first['final_loss']:.4f}",
    }


def percent(gain: Gain | None) -> str:
    """`+12.3 % (+10.1 … +14.6)`, or `+12.3 % (2 rounds)`; `–` without a gain."""
    return with_interval(gain, lambda ratio: f"{(ratio - 1) * 100:+.1f}", " %")


def bold(text: str, gain: Gain | None) -> str:
    """`text` with ** around it if this gain survives Holm's correction."""
    return f"**{text}**" if gain and gain.significant else text


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
    """The cells of each row, with ** around the gains that are significant."""
    found = [cells(row) for row in rows]
    for row, line in zip(rows, found, strict=True):
        for name, gain in (("gain", row.gain), ("total", row.total)):
            line[name] = bold(line[name], gain)
    if (line := first_beyond(facts, rows)) is not None:
        found.insert(line, dict.fromkeys(COLUMNS, "") | {"rung": f"*{EXTRA}*"})
    return found


def markdown(facts: dict, rows: list[Row]) -> str:
    """The table in Markdown, numbers to the right."""
    heads = columns(facts, rows)
    found = [[[*heads.values()], *([x[name] for name in heads] for x in lines(facts, rows))]]
    found = by_batch(facts, rows) if kind_of(facts).varied else found
    below = "".join(f"\n{line}\n" for line in foot(facts, rows))
    return "\n".join(pipes(head, texts) for head, *texts in found) + below.replace("<", "&lt;")


def pipes(head: list[str], lines: list[list[str]], left: int = 1) -> str:
    """A Markdown table, all but its first `left` columns to the right; cells are no HTML."""
    found = [head, ["---"] * left + ["---:"] * (len(head) - left), *lines]
    plain = [[" ".join(cell.replace("|", r"\|").split()) for cell in line] for line in found]
    return "".join(f"| {' | '.join(line)} |\n" for line in plain).replace("<", "&lt;")


def foot(facts: dict, rows: list[Row]) -> list[str]:
    """What has to be said of a table: rounds that failed, rungs that were not compiled but should
    have been, and slow rounds, which count as all others do."""
    called, found = {row.stem: name_of(row) for row in rows if row.logs}, []
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
        for k, ms in row.disturbed_runs.items():
            line = f"Round {k} of {called[row.stem]} was disturbed: a tenth of its steps took "
            found.append(f"{line}{ms:.1f} ms or more, more than twice its median. It is kept.")
    return found


def by_batch(facts: dict, rows: list[Row]) -> list[list[list[str]]]:
    """The two tables of a batch, heads first: tok/s and memory of each rung by B, and its gain at
    the smallest B, at the default one and at the largest that all rungs ran at."""
    rungs, sizes = {}, sorted({row.B for row in rows})
    for row in rows:
        rungs.setdefault(titles().get(row.script, row.script), {})[row.B] = row
    rates = [["", *(f"B={B}" for B in sizes), "largest B"]]
    for name, of in rungs.items():
        texts = [cells(of[B]) if B in of else {"tok/s": "–", "memory": ""} for B in sizes]
        found = [text["tok/s"] or text["ms / step"].partition(":")[0] for text in texts]
        most = max((B for B in of if of[B].logs), default=0)
        end = f"{most}" if of[max(of)].failure == OUT_OF_MEMORY else f"≥ {most}"
        rates.append([f"{name}, tok/s", *found, end])
        rates.append(["memory, GB", *(text["memory"].removesuffix(" GB") for text in texts), ""])
    shown = sizes_with_gains(facts, rows)
    gains = [["gain over the rung above", *(f"B={B}" for B in shown)]]
    for name, of in [*rungs.items()][1:]:
        found = [of[B].gain if B in of else None for B in shown]
        gains.append([name, *(bold(percent(gain), gain).replace(" (", "\n(") for gain in found)])
    return [rates, gains][: len(rungs)]


def screen(facts: dict, rows: list[Row], console: Console) -> Table | Group:
    """The table for a terminal, with as many columns as fit its width; of a batch the two."""
    if kind_of(facts).varied:
        return Group(*(drawn(*table) for table in by_batch(facts, rows)))
    heads = {k: head for k, head in columns(facts, rows).items() if k not in NOT_ON_SCREEN}
    shown = lines(facts, rows)
    for line in shown:  # why a row failed is told below the table
        line["ms / step"] = line["ms / step"].partition(":")[0]
    table = [[*heads.values()], *([line[name] for name in heads] for line in shown)]

    def first(n: int) -> Table:
        return drawn(*(line[:n] for line in table))

    unbounded, n = console.options.update(width=10**4), len(heads)
    while n > 4 and Measurement.get(console, unbounded, first(n)).maximum > console.width:
        n -= 1
    return first(n)


def drawn(heads: list[str], *lines: list[str]) -> Table:
    """A table for a terminal, all but its first column to the right, ** around what is bold."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head, *column in zip(heads, *lines, strict=True):
        width = max(18, *(len(text.strip("*")) for text in column))
        table.add_column(fill(head, width), justify="right" if table.columns else "left")
    for line in lines:  # as Text: a file name may hold [what] reads like markup
        table.add_row(*(Text(text.strip("*"), "bold" * text.startswith("**")) for text in line))
    return table


def doubts(facts: dict) -> list[str]:
    """What may have falsified the times: other programs, a peak that moved, throttling."""
    found = [busy(facts.get("load", 0))]
    peaks = [peak / 1e12 for peak in facts.get("peaks") or []]
    if peaks and max(peaks) > 1.1 * min(peaks):
        found.append(
            f"a large matmul ran at {min(peaks):.3g} TFLOP/s in one round and {max(peaks):.3g} in "
            "another: the machine was busy or hot, and gains less than that mean little"
        )
    pattern = r"clocks\.sm (\d+) MHz.*reasons\.active (0x[\da-fA-F]+)"
    read = {when: re.search(pattern, text) for when, text in facts["clocks"].items()}
    read = {when: (int(found[1]), int(found[2], 16)) for when, found in read.items() if found}
    for when, (clock, bits) in read.items():
        slower = clock < 0.95 * max(clock for clock, _ in read.values())  # MHz
        reasons = SLOWED_BY | POWER_LIMIT if slower else SLOWED_BY
        why = {name for bit, name in reasons.items() if bits & bit}
        found.append(f"the GPU was slowed by {' and '.join(sorted(why))} ({when})" if why else None)
    return [line for line in found if line]


def sizes(rows: list[Row]) -> str:
    """The B of these rows: `4`, of a batch `1 to 16`."""
    found = sorted({int(log.run["B"]) for row in rows for log in row.logs.values()})
    return f"{found[0]} to {found[-1]}" if found[1:] else f"{found[0]}"


def caption(facts: dict, rows: list[Row]) -> str:
    """Machine and settings in one line."""
    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    text = text.format(**first_log(rows).run | {"B": sizes(rows)})
    if facts.get("peak_flops"):
        rate = facts["peak_flops"] / 1e12
        text += f"; a large {facts.get('peak_dtype')} matmul runs at {rate:.3g} TFLOP/s"
        if len(peaks := facts.get("peaks") or []) > 1:
            text += f" ({min(peaks) / 1e12:.3g} to {max(peaks) / 1e12:.3g})"
    if facts.get("copy_bytes_per_s"):
        text += f", one in float32 at {facts['fp32_flops'] / 1e12:.3g}; "
        text += f"a copy reads and writes {facts['copy_bytes_per_s'] / 1e9:.1f} GB/s"
    return text + "; quick: few steps and rounds" * bool(facts.get("quick"))
