"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"
    ladder publish climb-20261121-101500.json.gz "…"     what `ladder share` packed elsewhere

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, where the
machine gets its row. With --readme README.md's headline and gains are those of this climb, for its
kind of device. The climb has to come from a committed state, so that its logs name what was
measured. To undo it, use git.
"""

import itertools
import json
import re
import shutil
import tempfile
from pathlib import Path

from ladder.commands import diff
from ladder.commands.kinds import KINDS
from ladder.commands.publishable import kept, read_publishable
from ladder.commands.results import Row, first_log, gain, read_climb, read_facts
from ladder.commands.scripts import ROOT, all_scripts, cpu_only, describe, title
from ladder.commands.share import unpack
from ladder.commands.tables import caption, factor, markdown, percent, pipes
from ladder.errors import BadInput
from ladder.files import SCRIPTS, write_atomic

# What is made from logs. In README.md the headline and the table of rungs name a climb on a GPU,
# one on a CPU or both; in RUNLOG.md each entry has the table of one, the machines all of logs/.
BLOCK = re.compile(
    r"<!-- (?P<kind>headline|rungs|machines|table)(?P<folders>( \S+)*) -->\n.*?<!-- end -->",
    re.DOTALL,
)


def add_arguments(parser):
    parser.add_argument("climb", type=Path, help="its folder, or a file that ladder share wrote")
    parser.add_argument("finding", help="what it shows, in one sentence")
    shown = "show it in README.md, for its kind of device (default: in RUNLOG.md alone)"
    parser.add_argument("--readme", action="store_true", help=shown)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        shared = args.climb.is_file()
        folder = unpack(args.climb, Path(scratch)) if shared else args.climb
        publish(folder, args.finding, args.readme)
    return 0


def publish(folder: Path, finding: str, in_readme: bool = False) -> None:
    """Copy the logs, add the entry, make the pages anew. Raises BadInput, and changes nothing, if
    the climb may not be published."""
    facts, rows = read_publishable(folder)
    target = new_target(facts)
    shown = target.relative_to(ROOT).as_posix()
    readme, runlog = ((ROOT / page).read_text("utf-8") for page in ("README.md", "RUNLOG.md"))
    if in_readme:
        readme = with_climb(readme, shown, rows)
    target.mkdir(parents=True)
    own = {name for name in facts["scripts"] if "/" not in name}.difference(SCRIPTS)
    scripts = (kept(folder, name) for name in own)
    logs, pictures = folder.glob("*.r*.log"), folder.glob("climb.png")  # none of a shared climb
    for path in (folder / "climb.json", *logs, *pictures, *scripts):
        shutil.copy(path, target)
    above, first, entries = runlog.partition("\n## 2")  # the newest entry, by its date
    runlog = f"{above}{entry(facts, rows, shown, finding)}{first}{entries}"
    write_atomic(ROOT / "RUNLOG.md", render(runlog).encode())
    write_atomic(ROOT / "README.md", render(readme).encode())
    print(f"published in {shown}, RUNLOG.md and README.md: read, then commit")


def new_target(facts: dict) -> Path:
    """A new folder in logs/: the day's second climb on a machine gets a `-2`."""
    device = re.sub(r"[^a-z0-9]+", "-", facts["device"].lower()).strip("-")
    name = f"{facts['started'][:10]}-{device}-{facts['kind']}"
    for number in itertools.count(1):
        target = ROOT / "logs" / (name if number == 1 else f"{name}-{number}")
        if not target.exists():
            return target
        if read_facts(target).get("started") == facts["started"]:
            why = "has this climb already: to publish it again, delete that first"
            raise BadInput(f"{target.relative_to(ROOT).as_posix()} {why}")


def with_climb(readme: str, shown: str, rows: list[Row]) -> str:
    """README.md's text with this climb as that of its kind of device."""
    if not rungs_of(rows).keys() >= {*range(11)}:
        raise BadInput("README.md shows only climbs in which rungs 0 to 10 came to their end")
    marker = next(match for match in BLOCK.finditer(readme) if match["kind"] == "rungs")
    named = {on_cpu(old): folder for folder, _, old in climbs_of(marker)} | {on_cpu(rows): shown}
    folders = " ".join(named[key] for key in sorted(named))  # a GPU's first
    return re.sub("<!-- (headline|rungs) .*? -->", rf"<!-- \1 {folders} -->", readme)


def on_cpu(rows: list[Row]) -> bool:
    """Whether the name of the device, as in ladder/machine.py, is that of a CPU."""
    return first_log(rows).run["device"].endswith(("thread)", "threads)"))


def rungs_of(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    known = {path.stem: number for number, path in enumerate(all_scripts())}
    return {known[row.stem]: row for row in rows if row.logs and row.stem in known}


def entry(facts: dict, rows: list[Row], shown: str, finding: str) -> str:
    """The entry of RUNLOG.md for one climb."""
    part = facts["kind"] == "climb" and rows[0].stem != "baseline"
    what = "some scripts" if part else KINDS[facts["kind"]].what
    warmup, measured = (first_log(rows).result[f"{k}_steps"] for k in ("warmup", "measured"))
    block = render(f"<!-- table {shown} -->\n<!-- end -->")
    return f"""
## {facts["started"][:10]}: {facts["device"]}: {what}

{caption(facts, rows)}; {facts["system"]}, {facts.get("cores")} cores, clocks before: \
{facts["clocks"]["before"]}, after: {facts["clocks"]["after"]}; {facts["repeats"]} rounds, \
interleaved; {warmup} warm-up step{"s" * (warmup > 1)} left out of each run, {measured} measured.

**Finding:** {" ".join(finding.split())}

Raw logs: `{shown}`

{block}
"""


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""

    def block(match: re.Match) -> str:
        made = MAKERS[match["kind"]](climbs_of(match))
        return f"{match[0].partition(chr(10))[0]}\n{made}<!-- end -->"

    return BLOCK.sub(block, text)


def climbs_of(match: re.Match) -> list[tuple[str, dict, list[Row]]]:
    """Folder, climb.json and rows of each climb that a marker names."""
    return [(folder, *read_climb(ROOT / folder)) for folder in match["folders"].split()]


def reported() -> dict:
    """The one climb in README.md that is not ours."""
    return json.loads((ROOT / "docs" / "reported.json").read_text("utf-8"))


def headline(climbs: list) -> str:
    """What the ladder gains: in each of these climbs, and as reported for a GPU."""
    lines, other = [], reported()
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
    other = reported()
    head = ["rung", "the one change", "lines", f"*reported*: {other['settings']}"]
    for folder, _, rows in climbs:
        run = first_log(rows).run
        head.append(f"*measured*: [{run['device']}]({folder}), B={run['B']}, T={run['T']}")
    scripts, measured = all_scripts(), [rungs_of(rows) for _, _, rows in climbs]
    lines, before = [], None
    for number, path in enumerate(scripts):
        size, more = "", ""
        if number:
            codes = map(diff.code_lines, scripts[number - 1 : number + 1])
            signs = [line[0] for line in diff.changed_lines(*codes)]
            size = f"+{signs.count('+')} −{signs.count('-')}"
        if ms := other["ms"].get(f"{number:02}"):
            more = f", {(before / ms - 1) * 100:+.0f} %" if before else ""
            before = ms
        change = re.split(r"\.(?: |$)", describe(path)["Change"])[0]
        line = [f"[{title(path)}]({diff.shown(path)})", change, size]
        without = other["within"].get(f"{number:02}", "CPU only" * cpu_only(path))
        line.append(f"{ms} ms{more}" if ms else without)
        for rungs in measured:
            cell = f"{rungs[0].tok_per_s:.0f} tok/s"
            if number:
                both = {number, number - 1} <= rungs.keys()
                found = gain(rungs[number - 1], rungs[number]) if both else None
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


MAKERS = {
    "headline": headline,
    "rungs": rungs_table,
    "machines": machines_table,
    "table": lambda climbs: markdown(*climbs[0][1:]),
}
