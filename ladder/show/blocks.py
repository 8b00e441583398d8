"""The parts of README.md and RUNLOG.md that are made from logs."""

import re

from ladder.files import ROOT
from ladder.measure.rows import Row, first_log, gain, read_climb, read_facts
from ladder.measure.scripts import all_scripts, cpu_only, describe, shown, title
from ladder.measure.scripts import before as rung_before
from ladder.show.diffs import changed_lines, code_lines
from ladder.show.reported import reported_climb
from ladder.show.tables import factor, markdown, percent, pipes

# What is made from logs. In README.md the headline and the table of rungs name a climb on a GPU,
# one on a CPU or both; in RUNLOG.md each entry has the table of one, the machines all of logs/.
BLOCK = re.compile(
    r"<!-- (?P<kind>headline|rungs|machines|table)(?P<folders>( \S+)*) -->\n.*?<!-- end -->",
    re.DOTALL,
)


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""

    def block(match: re.Match) -> str:
        made = MAKERS[match["kind"]](climbs_of(match))
        return f"{match[0].partition(chr(10))[0]}\n{made}<!-- end -->"

    return BLOCK.sub(block, text)


def climbs_of(match: re.Match) -> list[tuple[str, dict, list[Row]]]:
    """Folder, climb.json and rows of each climb that a marker names."""
    return [(folder, *read_climb(ROOT / folder)) for folder in match["folders"].split()]


def headline(climbs: list) -> str:
    """What the ladder gains: in each of these climbs, and as reported for a GPU."""
    lines, other = [], reported_climb()
    first, last = other["ms"]["00"], other["ms"]["10"]
    for folder, facts, rows in climbs:
        rungs, run = rungs_of(rows), first_log(rows).run
        base, top = rungs[0], rungs[max(rungs)]
        low, high = top.total.low, top.total.high
        between = f" ({low:.1f} to {high:.1f}, 95 % interval)" if low else ""
        ten = f" (rung 10: {rungs[10].total.ratio:.1f} times)" if max(rungs) > 10 else ""
        lines.append(
            f"- **{top.total.ratio:.1f} times**{between} on {run['device']}, B={run['B']}, "
            f"T={run['T']}: {base.tok_per_s:,.0f} to {top.tok_per_s:,.0f} tokens per second{ten}. "
            f"*Measured here*, {facts['repeats']} rounds of all scripts ([logs]({folder}))."
        )
    none = "No GPU has been measured here yet: [send yours](docs/commands.md#share)." * all(
        on_cpu(rows) for _, _, rows in climbs
    )
    lines.append(
        f"- **{first / last:.0f} times** on {other['settings']}: {first} to {last} ms a step. "
        f"*Reported elsewhere*, for rungs 02 to 10: [{other['what']}]({other['url']}) by "
        f"{other['who']}. {none}".rstrip()
    )
    return "\n".join(lines) + "\n"


def rungs_table(climbs: list) -> str:
    """Every rung with its one change and what that gains: as reported for a GPU, which is not ours,
    and in these climbs. A gain is over the rung before it in any order of a climb."""
    other = reported_climb()
    head = ["rung", "the one change", "lines", f"*reported*: {other['settings']}"]
    for folder, _, rows in climbs:
        run = first_log(rows).run
        head.append(f"*measured*: [{run['device']}]({folder}), B={run['B']}, T={run['T']}")
    scripts, measured = all_scripts(), [rungs_of(rows) for _, _, rows in climbs]
    lines, before = [], None
    for number, path in enumerate(scripts):
        size, more = "", ""
        earlier = scripts.index(rung_before(path)) if number else None
        if number:
            codes = code_lines(scripts[earlier]), code_lines(path)
            signs = [line[0] for line in changed_lines(*codes)]
            size = f"+{signs.count('+')} −{signs.count('-')}"
        if ms := other["ms"].get(f"{number:02}"):
            more = f", {(before / ms - 1) * 100:+.0f} %" if before else ""
            before = ms
        change = re.split(r"\.(?: |$)", describe(path)["Change"])[0]
        line = [f"[{title(path)}]({shown(path)})", change, size]
        without = other["within"].get(f"{number:02}", "CPU only" * cpu_only(path))
        line.append(f"{ms} ms{more}" if ms else without)
        for rungs in measured:
            cell = f"{rungs[0].tok_per_s:.0f} tok/s"
            if number:
                both = {number, earlier} <= rungs.keys()
                found = gain(rungs[earlier], rungs[number]) if both else None
                cell = f"**{percent(found)}**" if found and found.significant else percent(found)
            line.append(cell)
        lines.append(line)
    return f"{pipes(head, lines, left=2)}\n*Reported*: {other['note']}\n"


def machines_table(_) -> str:
    """A row for each machine under logs/, the fastest first: its newest climb from the baseline to
    rung 10 or above."""
    newest, lines = {}, []
    folders = [path.parent for path in (ROOT / "logs").glob("*/climb.json")]
    for folder in sorted(folders, key=lambda folder: read_facts(folder)["started"]):
        if read_facts(folder)["kind"] == "climb":
            facts, rows = read_climb(folder)
            if {0, 10} <= (rungs := rungs_of(rows)).keys():
                newest[facts["device"]] = facts, folder, rungs
    for facts, folder, rungs in newest.values():
        run, number = rungs[0].log.run, max(rungs)
        base, ten, top = (rungs[n].tok_per_s for n in (0, 10, number))
        cells = ["{device}, B={B}, T={T}".format(**run), run["torch"]]
        cells += [f"{facts['peak_flops'] / 1e12:.3g}", f"{facts['repeats']}", f"{base:.0f}"]
        cells += [f"{ten:.0f}", f"{top:.0f} ({number})", factor(rungs[number].total)]
        cells.append(f"[{facts['started'][:10]}]({folder.relative_to(ROOT).as_posix()})")
        lines.append((top, cells))
    head = ["machine", "torch", "large half-precision matmul, TFLOP/s", "rounds"]
    head += ["tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    return pipes(head, [cells for _, cells in sorted(lines, reverse=True)], left=2)


def on_cpu(rows: list[Row]) -> bool:
    """Whether the name of the device, as in ladder/machine.py, is that of a CPU."""
    return first_log(rows).run["device"].endswith(("thread)", "threads)"))


def rungs_of(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    known = {path.stem: number for number, path in enumerate(all_scripts())}
    return {known[row.stem]: row for row in rows if row.logs and row.stem in known}


MAKERS = {
    "headline": headline,
    "rungs": rungs_table,
    "machines": machines_table,
    "table": lambda climbs: markdown(*climbs[0][1:]),
}
