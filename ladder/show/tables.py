"""A climb as a table: on screen with rich, in README.md and RUNLOG.md as Markdown."""

from collections.abc import Callable
from functools import cache
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.machine import busy
from ladder.measure.kinds import kind_of
from ladder.measure.rounds import RATES
from ladder.measure.rows import OUT_OF_MEMORY, OUT_OF_TIME, Row, first_log
from ladder.measure.scripts import all_scripts, chain, cpu_only, peer_scripts
from ladder.measure.stats import Gain
from ladder.show.docstrings import title
from ladder.text import printable

COLUMNS = (
    "rung", "ms / step", "p10 – p90", "tok/s", "gain", "total", "MFU", "of roofline", "memory",
    "first step", "first loss", "final loss",
)  # fmt: skip
NOT_ON_SCREEN = ("p10 – p90", "first loss")
FEWEST = 4  # columns on a narrow screen
EXTRA = "extra, CPU only"
WHY_NOT_COMPILED = "is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?"


@cache
def titles() -> dict[str, str]:
    """The title of every script, and of the top rung without it, by the stem of the file name."""
    names = {}
    for path in [*all_scripts(), *peer_scripts()]:
        names[path.stem] = title(path)
        names[f"without_{path.stem}"] = f"without {title(path)}"
    return names


def title_of(row: Row) -> str:
    """The title of the row's script."""
    return titles().get(row.script, row.script)


def name_of(row: Row) -> str:
    """The title of the row's script; in a batch its B too."""
    return f"{title_of(row)}, B={row.B}" if row.B else title_of(row)


def columns(climb: dict, rows: list[Row]) -> dict[str, str]:
    """The heading of each of COLUMNS that this kind of climb shows."""
    kind = kind_of(climb)
    headings = dict(zip(COLUMNS, COLUMNS, strict=True))
    headings["gain"] = kind.gain
    headings["total"] = kind.total
    if not kind.gain:
        del headings["gain"], headings["total"]
    if not any(row.roofline for row in rows):
        del headings["of roofline"]
    return headings


def cells(row: Row) -> dict[str, str]:
    """The text of each of COLUMNS. A row that failed has only why."""
    if row.failure:
        why = row.failure
        if why not in (OUT_OF_MEMORY, OUT_OF_TIME):
            why = f"failed: {why}"
        return dict.fromkeys(COLUMNS, "") | {"rung": name_of(row), "ms / step": why}
    first = row.log.result
    return {
        "rung": name_of(row),
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


def factor(gain: Gain | None) -> str:
    """`1.12× (1.10 … 1.15)`, or `1.12× (2 rounds)`; `–` without a gain."""
    return with_interval(gain, "{:.2f}".format, "×")


def with_interval(gain: Gain | None, text: Callable[[float], str], unit: str) -> str:
    """A gain and its interval, each ratio written by `text`; below three rounds their number."""
    if gain is None:
        return "–"
    if gain.low is not None:
        certainty = f"{text(gain.low)} … {text(gain.high)}"
    elif gain.rounds == 1:
        certainty = "1 round"
    else:
        certainty = f"{gain.rounds} rounds"
    return f"{text(gain.ratio)}{unit} ({certainty})".replace("-", "−")


def bold(text: str, gain: Gain | None) -> str:
    """`text` with ** around it if this gain survives Holm's correction."""
    return f"**{text}**" if gain and gain.significant else text


def first_beyond(climb: dict, rows: list[Row]) -> int | None:
    """The index of the first rung for CPUs only, if other rungs stand above it."""
    beyond = {path.stem for path in all_scripts() if cpu_only(path)}
    for index, row in enumerate(rows):
        if row.stem in beyond:
            return index if index and kind_of(climb).against == "previous" else None
    return None


def lines(climb: dict, rows: list[Row], headings: dict[str, str]) -> list[list[str]]:
    """The cells of each row below these headings, with ** around significant gains."""
    beyond = first_beyond(climb, rows)
    table = []
    for index, row in enumerate(rows):
        if index == beyond:
            table.append([f"*{EXTRA}*"] + [""] * (len(headings) - 1))
        line = cells(row)
        line["gain"] = bold(line["gain"], row.gain)
        line["total"] = bold(line["total"], row.total)
        table.append([line[name] for name in headings])
    return table


def markdown(climb: dict, rows: list[Row]) -> str:
    """The table in Markdown, numbers to the right, and what has to be said of it."""
    if kind_of(climb).varied:
        header, *body = by_batch(rows)
        text = pipes(header, body)
    else:
        headings = columns(climb, rows)
        text = pipes(list(headings.values()), lines(climb, rows, headings))
    for line in foot(climb, rows):
        text += f"\n{line}\n".replace("<", "&lt;")
    return text


def pipes(header: list[str], body: list[list[str]], left=1) -> str:
    """A Markdown table, all but its first `left` columns to the right. Cells are no HTML."""
    ruler = ["---"] * left + ["---:"] * (len(header) - left)
    text = ""
    for line in [header, ruler, *body]:
        one_line = [" ".join(cell.replace("|", r"\|").split()) for cell in line]
        text += f"| {' | '.join(one_line)} |\n"
    return text.replace("<", "&lt;")


def foot(climb: dict, rows: list[Row]) -> list[str]:
    """What has to be said of a table: rounds that failed, rungs that were not compiled but should
    have been, rounds that were disturbed, and rows above their roofline."""
    names = {row.stem: name_of(row) for row in rows if row.logs}
    notes = []
    for run, why in climb["failures"].items():
        stem, _, k = run.rpartition(".r")
        if stem in names:
            note = f"Round {k} of {names[stem]} failed; its row and gains have the others only: "
            notes.append(note + printable(" ".join(why.split())))
    for row in rows:
        if not_compiled(row):
            notes.append(f"Nothing was compiled in {names[row.stem]}: {WHY_NOT_COMPILED}")
        for k, ms in row.slow_rounds.items():
            note = f"Round {k} of {names[row.stem]} took {ms:.1f} ms a step, more than twice "
            notes.append(f"{note}the median of its row. It is kept.")
        for k, ms in row.disturbed_runs.items():
            note = f"Round {k} of {names[row.stem]} was disturbed: a tenth of its steps took "
            notes.append(f"{note}{ms:.1f} ms or more, more than twice its median. It is kept.")
    if any(row.roofline and sum(row.roofline) > row.ms for row in rows):
        above = "Above 100 % of the roofline: caches spare the memory some of the bytes it counts."
        notes.append(above)
    return notes


def not_compiled(row: Row) -> bool:
    """Whether a rung that calls torch.compile, from 05 on, has a log that says `compiled=no`."""
    compiles = [path.stem for path in chain()[5:]]
    if row.script not in compiles or not row.logs:
        return False
    return row.log.effective.get("compiled") == "no"


def by_batch(rows: list[Row]) -> list[list[str]]:
    """The table of a batch, its header first: tok/s and memory of each script by B, and the largest
    B that it ran at."""
    scripts = {}
    for row in rows:
        scripts.setdefault(title_of(row), {})[row.B] = row
    sizes = sorted(set().union(*scripts.values()))
    table = [["", *(f"B={B}" for B in sizes), "largest B"]]
    for name, by_size in scripts.items():
        rates = [f"{name}, tok/s"]
        memory = ["memory, GB"]
        largest = 0
        for B in sizes:
            texts = {"tok/s": "–", "memory": ""}
            if B in by_size:
                texts = cells(by_size[B])
                largest = B if by_size[B].logs else largest
            rates.append(texts["tok/s"] or texts["ms / step"].partition(":")[0])
            memory.append(texts["memory"].removesuffix(" GB"))
        is_limit = by_size[max(by_size)].failure == OUT_OF_MEMORY
        rates.append(f"{largest}" if is_limit else f"≥ {largest}")
        memory.append("")
        table += [rates, memory]
    return table


def screen(climb: dict, rows: list[Row], console: Console) -> Table:
    """The table for a terminal, with as many columns as fit its width."""
    if kind_of(climb).varied:
        return drawn(by_batch(rows))
    headings = columns(climb, rows)
    for name in NOT_ON_SCREEN:
        del headings[name]
    table = [list(headings.values())]
    for name, ms, *others in lines(climb, rows, headings):
        table.append([name, ms.partition(":")[0], *others])  # the foot says why a row failed
    unbounded = console.options.update(width=10**4)
    for count in range(len(headings), FEWEST - 1, -1):
        shown = drawn([line[:count] for line in table])
        if console.measure(shown, options=unbounded).maximum <= console.width:
            break
    if count < len(headings):
        shown.caption = f"On a wider screen also: {', '.join(table[0][count:])}."
    return shown


def drawn(table: list[list[str]]) -> Table:
    """A table for a terminal, all but its first column to the right, ** around what is bold."""
    header, *body = table
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption_justify="left")
    for index, heading in enumerate(header):
        widths = [len(line[index].strip("*")) for line in body]
        width = max([18, *widths])
        shown.add_column(fill(heading, width), justify="right" if index else "left")
    for line in body:
        texts = []
        for cell in line:  # as Text: a file name may hold [what] reads like markup
            style = "bold" if cell.startswith("**") else ""
            texts.append(Text(cell.strip("*"), style))
        shown.add_row(*texts)
    return shown


def doubts(climb: dict) -> list[str]:
    """What may have falsified the times: other programs, and a peak that moved."""
    notes = []
    load = busy(climb.get("load", 0))
    if load:
        notes.append(load)
    peaks = climb.get("peaks")
    if peaks and max(peaks) > 1.1 * min(peaks):
        notes.append(
            f"a large matmul ran at {min(peaks) / 1e12:.3g} TFLOP/s in one round and "
            f"{max(peaks) / 1e12:.3g} in another: the machine was busy or hot, and gains less "
            "than that mean little"
        )
    return notes


def sizes(rows: list[Row]) -> str:
    """The B of these rows: `4`, in a batch `1 to 16`."""
    found = [int(log.run["B"]) for row in rows for log in row.logs.values()]
    smallest, largest = min(found), max(found)
    return f"{smallest}" if smallest == largest else f"{smallest} to {largest}"


def caption(climb: dict, rows: list[Row]) -> str:
    """Machine and settings in one line. Of a rate the median of the rounds, and their range."""

    def rate(name: str, unit: float) -> str:
        text = f"{climb[name] / unit:.3g}"
        by_round = climb.get(RATES[name], [])
        if len(by_round) > 1:
            text += f" ({min(by_round) / unit:.3g} to {max(by_round) / unit:.3g})"
        return text

    text = "{device}, torch {torch}, {model}, B={B}, T={T}, {steps} steps, {data}, commit {commit}"
    text = text.format(**first_log(rows).run | {"B": sizes(rows)})
    text += f"; a large {climb.get('peak_dtype')} matmul runs at {rate('peak_flops', 1e12)} TFLOP/s"
    if climb.get("copy_bytes_per_s"):
        if climb["peak_dtype"] != "float32":
            text += f", one in float32 at {rate('fp32_flops', 1e12)}"
        text += f"; a copy reads and writes {rate('copy_bytes_per_s', 1e9)} GB/s"
    if climb.get("quick"):
        text += "; quick: few steps, so gains may be noise, and rungs left out count in the next"
    return text
