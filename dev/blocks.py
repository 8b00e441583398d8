"""The parts of README.md and RUNLOG.md that are made from logs."""

import re
from pathlib import Path
from typing import NamedTuple

from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.climb import Climb
from ladder.measure.docstrings import describe, title
from ladder.measure.rows import Row, first_log, read_climb
from ladder.measure.scripts import branch, number_of, relative_name, rungs, rungs_for
from ladder.measure.work import AS_BEFORE, LABELS, roofline_ms, work
from ladder.show.reported import reported_climb
from ladder.show.tables import Cell, factor, footnotes, gain_cell, markdown, percent, pipes

# In README.md the headline and the table of rungs name a climb on a GPU, one on a CPU or both; in
# RUNLOG.md each entry has the table of one, and the machines are all of logs/.
BLOCK = re.compile(
    r"<!-- (?P<kind>headline|rungs|machines|table)(?P<folders>( \S+)*) -->\n.*?<!-- end -->",
    re.DOTALL,
)
# Of the calculated columns; B is that of the reported climb.
GPUS = {"A100 80GB": "NVIDIA A100-SXM4-80GB", "RTX 4090": "NVIDIA GeForce RTX 4090"}
B = 16
ROOFLINE = """
*Calculated*: the [roofline](docs/roofline.md) at this B and T, even if they do not fit the GPU.
"""
NO_GPU = " No GPU has been measured here yet: [send yours](docs/commands.md#send-a-climb)."
USUAL = f"gpt2 on tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"  # of README.md's tables


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    return BLOCK.sub(block, text)


def block(match: re.Match) -> str:
    """One block with its markers, made from its logs."""
    marker = match[0].partition("\n")[0]
    climbs = climbs_of(match)
    if match["kind"] == "headline":
        made = headline(climbs)
    elif match["kind"] == "rungs":
        made = rungs_table(climbs)
    elif match["kind"] == "machines":
        made = machines_table()
    else:
        made = markdown(*climbs[0][1:])
    return f"{marker}\n{made}<!-- end -->"


def climbs_of(match: re.Match) -> list[tuple[str, Climb, list[Row]]]:
    """Folder, climb and rows of each climb that a marker names."""
    climbs = []
    for folder in match["folders"].split():
        climb, rows = read_climb(ROOT / folder)
        climbs.append((folder, climb, rows))
    return climbs


def rungs_marker(readme: str) -> re.Match | None:
    """The block of README.md that has the table of rungs."""
    for match in BLOCK.finditer(readme):
        if match["kind"] == "rungs":
            return match
    return None


def headline(climbs: list) -> str:
    """What the ladder gains: as reported for a GPU, and in each of these climbs."""
    other = reported_climb()
    first = other["ms"]["00"]
    last = other["ms"]["10"]
    text = f"- **{first / last:.0f} times** on {other['settings']}: {first} to {last} ms a step. "
    text += f"*Reported elsewhere*, for rungs 02 to 10: [{other['what']}]({other['url']}) by "
    text += f"{other['who']}."
    if all(climb.device_type == "cpu" for _, climb, _ in climbs):
        text += NO_GPU
    for folder, climb, rows in climbs:
        ran = by_number(rows)
        top = ran[max(ran)]
        text += f"\n- **{top.total.ratio:.1f} times**"
        if top.total.low:
            text += f" ({top.total.low:.1f} to {top.total.high:.1f}, 95 % interval)"
        text += f" on {machine_of(rows)}: "
        text += f"{ran[0].tok_per_s:,.0f} to {top.tok_per_s:,.0f} tokens per second"
        if max(ran) > 10:
            text += f" at rung {max(ran)} ({ran[10].total.ratio:.1f} times at rung 10)"
        text += f". *Measured here*, {climb.rounds} rounds of all scripts ([logs]({folder}))."
    return f"{text}\n"


def machine_of(rows: list[Row]) -> str:
    """The device of these rows, with B and T."""
    return "{device}, B={B}, T={T}".format(**first_log(rows).run)


def rungs_table(climbs: list) -> str:
    """The ten rungs, each with its one change and what that gains; below it the rungs in cpu/."""
    lines = rung_lines(climbs)
    for path, line in zip(rungs(), lines, strict=True):
        line["rung"] = Cell(f"[{title(path)}]({relative_name(path)})")
    header = [Cell(heading) for heading in lines[0]]
    body = [list(line.values()) for line in lines]
    note = f"\n*Reported*: {reported_climb()['note']}"
    return pipes([header, *body], left=4) + beyond(climbs) + disturbed(climbs) + note + ROOFLINE


def beyond(climbs: list) -> str:
    """What the rungs in cpu/ gain in each of these climbs that ran them, in one line."""
    text = ""
    for _, _, rows in climbs:
        gains = []
        for path in branch("cpu"):
            row = by_number(rows).get(number_of(path))
            if row:
                cell = gain_cell(percent(row.gain), row.gain)
                gain = f"**{cell.text}**" if cell.bold else cell.text
                gains.append(f"[{title(path)}]({relative_name(path)}) {gain}")
        if gains:
            text += f"\nOn CPUs the ladder goes on in [cpu/](cpu); {machine_of(rows)}: "
            text += f"{', '.join(gains)}.\n"
    return text


def disturbed(climbs: list) -> str:
    """What stands below the tables of these climbs in RUNLOG.md, such as a disturbed round."""
    text = ""
    for _, climb, rows in climbs:
        for note in footnotes(climb, rows):
            text += f"\n{machine_of(rows)}: {note}\n".replace("<", "&lt;")
    return text


def rung_lines(climbs: list) -> list[dict[str, Cell]]:
    """A line of a table for each of the ten rungs: what it changes, removes and is for; its times
    as reported, which are not ours, and as calculated; its gain in each of these climbs."""
    scripts = rungs()
    other = reported_climb()
    columns = {f"*reported*: {other['settings']}": reported_column(scripts, other)}
    for name, gpu in GPUS.items():
        columns[f"*calculated*: {name}"] = calculated_column(scripts, gpu)
    for _, _, rows in climbs:
        columns[f"*measured*: {machine_of(rows)}"] = measured_column(scripts, by_number(rows))
    lines = []
    for number, path in enumerate(scripts):
        fields = describe(path)
        line = {"rung": Cell(title(path))}
        line["the one change"] = Cell(re.split(r"\.(?: |$)", fields["Change"])[0])
        removes, _, purpose = fields.get("Removes", "").partition(": for the ")
        line["what it removes"] = Cell(removes)
        line["for"] = Cell((purpose or "speed") if number else "")
        for heading, column in columns.items():
            line[heading] = column[number]
        lines.append(line)
    return lines


def reported_column(scripts: list[Path], other: dict) -> list[Cell]:
    """What was reported for each rung, with the gain over the reported time before it."""
    column = []
    before = None
    for number in range(len(scripts)):
        ms = other["ms"].get(f"{number:02}")
        if ms and before:
            column.append(Cell(f"{ms} ms, {(before / ms - 1) * 100:+.0f} %"))
        elif ms:
            column.append(Cell(f"{ms} ms"))
        else:
            column.append(Cell(other["within"].get(f"{number:02}", "")))
        before = ms or before
    return column


def calculated_column(scripts: list[Path], gpu: str) -> list[Cell]:
    """The roofline of each rung on this GPU."""
    column = []
    for path in scripts:
        if path.stem == AS_BEFORE:
            column.append(Cell("as 06"))
        else:
            column.append(Cell(f"{sum(calculated(path, gpu).values()):.0f} ms"))
    return column


def calculated(path: Path, gpu: str) -> dict[str, float]:
    """The milliseconds of each part of a rung's step at a GPU's data sheet; empty if unknown."""
    step = work(B).get(path.stem)
    if step is None:
        return {}
    return dict(zip(LABELS, roofline_ms(step, find_gpu(gpu)._asdict()), strict=True))


def measured_column(scripts: list[Path], ran: dict[int, Row]) -> list[Cell]:
    """The baseline's rate, and the gain of each other rung over the one it goes on from."""
    column = [Cell(f"{ran[0].tok_per_s:.0f} tok/s")]
    for number in range(1, len(scripts)):
        gain = ran[number].gain if number in ran else None
        column.append(gain_cell(percent(gain), gain))
    return column


def other_setting(run: dict[str, str]) -> str:
    """Model and text of a climb, if README.md does not show their speed; else empty."""
    setting = f"{run['model']} on {run['data']} ({run.get('data_sha256')})"
    return "" if setting == USUAL else setting


class Machine(NamedTuple):
    """A machine under logs/ and its newest climb from the baseline to rung 10 or above."""

    tok_per_s: float  # of the highest rung
    folder: Path
    climb: Climb
    ran: dict[int, Row]  # by number of the rung


def machines() -> list[Machine]:
    """Every machine under logs/, the fastest first. Only README.md's model and text count."""
    newest = {}
    for path in sorted((ROOT / "logs").glob("*/climb.json")):  # named by date
        climb, rows = read_climb(path.parent)
        ran = by_number(rows)
        complete = climb.kind == "climb" and 0 in ran and 10 in ran
        if complete and not other_setting(ran[0].log.run):
            top = ran[max(ran)]
            newest[climb.device] = Machine(top.tok_per_s, path.parent, climb, ran)
    return sorted(newest.values(), key=lambda machine: -machine.tok_per_s)


def machines_table() -> str:
    """A row for each of `machines`."""
    header = ["machine", "torch", "large half-precision matmul, TFLOP/s", "rounds"]
    header += ["tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    lines = [header]
    for machine in machines():
        lines.append(machine_line(machine.folder, machine.climb, machine.ran))
    return pipes([[Cell(text) for text in line] for line in lines], left=2)


def machine_line(folder: Path, climb: Climb, ran: dict[int, Row]) -> list[str]:
    """The texts of one machine's cells."""
    number = max(ran)
    return [
        machine_of([*ran.values()]),
        ran[0].log.run["torch"],
        f"{climb.rate('peak_flops') / 1e12:.3g}",
        f"{climb.rounds}",
        f"{ran[0].tok_per_s:.0f}",
        f"{ran[10].tok_per_s:.0f}",
        f"{ran[number].tok_per_s:.0f} ({number})",
        factor(ran[number].total),
        f"[{climb.started[:10]}]({folder.relative_to(ROOT).as_posix()})",
    ]


def by_number(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    by_stem = {row.stem: row for row in rows if row.logs}
    ran = {}
    for path in rungs_for("cpu"):
        if path.stem in by_stem:
            ran[number_of(path)] = by_stem[path.stem]
    return ran
