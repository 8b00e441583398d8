"""The parts of README.md and RUNLOG.md that are made from logs."""

import re
from pathlib import Path

from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.rows import Row, first_log, read_climb
from ladder.measure.scripts import all_scripts, cpu_only, shown
from ladder.measure.work import LABELS, roofline_ms, work
from ladder.show.docstrings import describe, title
from ladder.show.reported import reported_climb
from ladder.show.tables import bold, factor, markdown, percent, pipes

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
NO_GPU = " No GPU has been measured here yet: [send yours](docs/commands.md#share)."


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


def climbs_of(match: re.Match) -> list[tuple[str, dict, list[Row]]]:
    """Folder, climb.json and rows of each climb that a marker names."""
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
    devices = [climb["device"] for _, climb, _ in climbs]
    if all(map(is_cpu, devices)):
        text += NO_GPU
    for folder, climb, rows in climbs:
        rungs = rungs_of(rows)
        top = rungs[max(rungs)]
        text += f"\n- **{top.total.ratio:.1f} times**"
        if top.total.low:
            text += f" ({top.total.low:.1f} to {top.total.high:.1f}, 95 % interval)"
        text += f" on {machine_of(rows)}: "
        text += f"{rungs[0].tok_per_s:,.0f} to {top.tok_per_s:,.0f} tokens per second"
        if max(rungs) > 10:
            text += f" at rung {max(rungs)} ({rungs[10].total.ratio:.1f} times at rung 10)"
        text += f". *Measured here*, {climb['repeats']} rounds of all scripts ([logs]({folder}))."
    return f"{text}\n"


def is_cpu(device: str) -> bool:
    """Whether the name of a device, as in ladder/machine.py, is that of a CPU."""
    return device.endswith(("thread)", "threads)"))


def machine_of(rows: list[Row]) -> str:
    """The device of these rows, with B and T."""
    return "{device}, B={B}, T={T}".format(**first_log(rows).run)


def rungs_table(climbs: list) -> str:
    """Every rung with its one change and what that gains."""
    lines = rung_lines(climbs)
    for path, line in zip(all_scripts(), lines, strict=True):
        line["rung"] = f"[{title(path)}]({shown(path)})"
    body = [[*line.values()] for line in lines]
    note = f"\n*Reported*: {reported_climb()['note']}"
    return pipes([*lines[0]], body, left=3) + note + ROOFLINE


def rung_lines(climbs: list) -> list[dict[str, str]]:
    """A line of a table for each rung: what it changes and removes; its times as reported, which
    are not ours, and as calculated; its gain in each of these climbs."""
    scripts = all_scripts()
    other = reported_climb()
    columns = {f"*reported*: {other['settings']}": reported_column(scripts, other)}
    for name, gpu in GPUS.items():
        columns[f"*calculated*: {name}"] = calculated_column(scripts, gpu)
    for _, _, rows in climbs:
        columns[f"*measured*: {machine_of(rows)}"] = measured_column(scripts, rungs_of(rows))
    lines = []
    for number, path in enumerate(scripts):
        fields = describe(path)
        line = {"rung": title(path)}
        line["the one change"] = re.split(r"\.(?: |$)", fields["Change"])[0]
        line["what it removes"] = fields.get("Removes", "")
        for heading, cells in columns.items():
            line[heading] = cells[number]
        lines.append(line)
    return lines


def reported_column(scripts: list[Path], other: dict) -> list[str]:
    """What was reported for each rung, with the gain over the reported time before it."""
    cells = []
    before = None
    for number, path in enumerate(scripts):
        ms = other["ms"].get(f"{number:02}")
        if ms and before:
            cells.append(f"{ms} ms, {(before / ms - 1) * 100:+.0f} %")
        elif ms:
            cells.append(f"{ms} ms")
        else:
            without = "CPU only" if cpu_only(path) else ""
            cells.append(other["within"].get(f"{number:02}", without))
        before = ms or before
    return cells


def calculated_column(scripts: list[Path], gpu: str) -> list[str]:
    """The roofline of each rung on this GPU."""
    cells = []
    for path in scripts:
        if cpu_only(path):
            cells.append("CPU only")
        elif path.stem.startswith("07_"):  # the compiler may pad the unpadded matmul by itself
            cells.append("as 06")
        else:
            cells.append(f"{sum(calculated(path, gpu).values()):.0f} ms")
    return cells


def calculated(path: Path, gpu: str) -> dict[str, float]:
    """The milliseconds of each part of a rung's step at a GPU's data sheet; empty if unknown."""
    step = work(B).get(path.stem)
    if step is None:
        return {}
    return dict(zip(LABELS, roofline_ms(step, find_gpu(gpu)._asdict()), strict=True))


def measured_column(scripts: list[Path], rungs: dict[int, Row]) -> list[str]:
    """The baseline's rate, and the gain of each other rung over the one it goes on from."""
    cells = [f"{rungs[0].tok_per_s:.0f} tok/s"]
    for number in range(1, len(scripts)):
        gain = rungs[number].gain if number in rungs else None
        cells.append(bold(percent(gain), gain))
    return cells


def machines_table() -> str:
    """A row for each machine under logs/, the fastest first: its newest climb from the baseline to
    rung 10 or above."""
    newest = {}
    for path in sorted((ROOT / "logs").glob("*/climb.json")):  # named by date
        climb, rows = read_climb(path.parent)
        rungs = rungs_of(rows)
        if climb["kind"] == "climb" and 0 in rungs and 10 in rungs:
            top = rungs[max(rungs)]
            newest[climb["device"]] = top.tok_per_s, machine_line(path.parent, climb, rungs)
    header = ["machine", "torch", "large half-precision matmul, TFLOP/s", "rounds"]
    header += ["tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    fastest_first = sorted(newest.values(), reverse=True)
    return pipes(header, [line for _, line in fastest_first], left=2)


def machine_line(folder: Path, climb: dict, rungs: dict[int, Row]) -> list[str]:
    """The cells of one machine."""
    number = max(rungs)
    return [
        machine_of([*rungs.values()]),
        rungs[0].log.run["torch"],
        f"{climb['peak_flops'] / 1e12:.3g}",
        f"{climb['repeats']}",
        f"{rungs[0].tok_per_s:.0f}",
        f"{rungs[10].tok_per_s:.0f}",
        f"{rungs[number].tok_per_s:.0f} ({number})",
        factor(rungs[number].total),
        f"[{climb['started'][:10]}]({folder.relative_to(ROOT).as_posix()})",
    ]


def rungs_of(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    by_stem = {row.stem: row for row in rows if row.logs}
    rungs = {}
    for number, path in enumerate(all_scripts()):
        if path.stem in by_stem:
            rungs[number] = by_stem[path.stem]
    return rungs
