"""The parts of README.md and RUNLOG.md that are made from logs."""

import re
from pathlib import Path

from ladder.files import ROOT
from ladder.measure.rows import Row, first_log, gains_of_neighbours, read_climb, read_climb_json
from ladder.measure.scripts import all_scripts, cpu_only, describe, shown, title
from ladder.measure.scripts import before as rung_before
from ladder.show.diffs import changed_lines, code_lines
from ladder.show.reported import reported_climb
from ladder.show.tables import bold, factor, markdown, percent, pipes

# In README.md the headline and the table of rungs name a climb on a GPU, one on a CPU or both; in
# RUNLOG.md each entry has the table of one, and the machines are all of logs/.
BLOCK = re.compile(
    r"<!-- (?P<kind>headline|rungs|machines|table)(?P<folders>( \S+)*) -->\n.*?<!-- end -->",
    re.DOTALL,
)
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
    return [(folder, *read_climb(ROOT / folder)) for folder in match["folders"].split()]


def headline(climbs: list) -> str:
    """What the ladder gains: in each of these climbs, and as reported for a GPU."""
    text = ""
    for folder, climb, rows in climbs:
        rungs = rungs_of(rows)
        top = rungs[max(rungs)]
        run = first_log(rows).run
        text += f"- **{top.total.ratio:.1f} times**"
        if top.total.low:
            text += f" ({top.total.low:.1f} to {top.total.high:.1f}, 95 % interval)"
        text += f" on {run['device']}, B={run['B']}, T={run['T']}: "
        text += f"{rungs[0].tok_per_s:,.0f} to {top.tok_per_s:,.0f} tokens per second"
        if max(rungs) > 10:
            text += f" (rung 10: {rungs[10].total.ratio:.1f} times)"
        text += f". *Measured here*, {climb['repeats']} rounds of all scripts ([logs]({folder})).\n"
    other = reported_climb()
    first = other["ms"]["00"]
    last = other["ms"]["10"]
    text += f"- **{first / last:.0f} times** on {other['settings']}: {first} to {last} ms a step. "
    text += f"*Reported elsewhere*, for rungs 02 to 10: [{other['what']}]({other['url']}) by "
    text += f"{other['who']}."
    if all(on_cpu(rows) for _, _, rows in climbs):
        text += NO_GPU
    return f"{text}\n"


def rungs_table(climbs: list) -> str:
    """Every rung with its one change and what that gains: as reported for a GPU, which is not ours,
    and in these climbs. A gain is over the rung before it in any order of a climb."""
    other = reported_climb()
    header = ["rung", "the one change", "lines", f"*reported*: {other['settings']}"]
    measured = []
    for folder, _, rows in climbs:
        run = first_log(rows).run
        header.append(f"*measured*: [{run['device']}]({folder}), B={run['B']}, T={run['T']}")
        measured.append(measured_column(rungs_of(rows)))
    scripts = all_scripts()
    reported = reported_column(scripts, other)
    body = []
    for number, path in enumerate(scripts):
        change = re.split(r"\.(?: |$)", describe(path)["Change"])[0]
        size = size_of_change(rung_before(path), path) if number else ""
        line = [f"[{title(path)}]({shown(path)})", change, size, reported[number]]
        for column in measured:
            line.append(column.get(number, percent(None)))
        body.append(line)
    return f"{pipes(header, body, left=2)}\n*Reported*: {other['note']}\n"


def size_of_change(before: Path, after: Path) -> str:
    """How many lines of code a rung adds and removes: `+9 −3`."""
    lines = changed_lines(code_lines(before), code_lines(after))
    added = sum(line.startswith("+") for line in lines)
    return f"+{added} −{len(lines) - added}"


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


def measured_column(rungs: dict[int, Row]) -> dict[int, str]:
    """The baseline's rate, and the gain of each other rung over the one before it."""
    cells = {0: f"{rungs[0].tok_per_s:.0f} tok/s"}
    for number, gain in gains_of_neighbours(rungs).items():
        cells[number] = bold(percent(gain), gain)
    return cells


def machines_table() -> str:
    """A row for each machine under logs/, the fastest first: its newest climb from the baseline to
    rung 10 or above."""
    folders = [path.parent for path in (ROOT / "logs").glob("*/climb.json")]
    folders.sort(key=lambda folder: read_climb_json(folder)["started"])
    newest = {}
    for folder in folders:
        climb, rows = read_climb(folder)
        rungs = rungs_of(rows)
        if climb["kind"] == "climb" and 0 in rungs and 10 in rungs:
            top = rungs[max(rungs)]
            newest[climb["device"]] = top.tok_per_s, machine_line(folder, climb, rungs)
    header = ["machine", "torch", "large half-precision matmul, TFLOP/s", "rounds"]
    header += ["tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    body = [line for _, line in sorted(newest.values(), reverse=True)]
    return pipes(header, body, left=2)


def machine_line(folder: Path, climb: dict, rungs: dict[int, Row]) -> list[str]:
    """The cells of one machine."""
    run = rungs[0].log.run
    number = max(rungs)
    return [
        "{device}, B={B}, T={T}".format(**run),
        run["torch"],
        f"{climb['peak_flops'] / 1e12:.3g}",
        f"{climb['repeats']}",
        f"{rungs[0].tok_per_s:.0f}",
        f"{rungs[10].tok_per_s:.0f}",
        f"{rungs[number].tok_per_s:.0f} ({number})",
        factor(rungs[number].total),
        f"[{climb['started'][:10]}]({folder.relative_to(ROOT).as_posix()})",
    ]


def on_cpu(rows: list[Row]) -> bool:
    """Whether the name of the device, as in ladder/machine.py, is that of a CPU."""
    return first_log(rows).run["device"].endswith(("thread)", "threads)"))


def rungs_of(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    by_stem = {row.stem: row for row in rows if row.logs}
    rungs = {}
    for number, path in enumerate(all_scripts()):
        if path.stem in by_stem:
            rungs[number] = by_stem[path.stem]
    return rungs
