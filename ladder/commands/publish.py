"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"
    ladder publish climb-20261121-101500.json.gz "…"     what `ladder share` packed elsewhere

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, where the
machine gets its row, and README.md's headline and gains are made anew, unless those for this kind
of device are of another machine. The climb has to come from a committed state, so that its logs
name what was measured. To undo it, use git.
"""

import itertools
import json
import re
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

from ladder.commands import diff
from ladder.commands.kinds import KINDS
from ladder.commands.publishable import read_publishable, source
from ladder.commands.results import Row, first_log, gain, read_climb, read_facts
from ladder.commands.scripts import ROOT, all_scripts, cpu_only, describe
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
    parser.add_argument("--force", action="store_true", help="replace a better table (default: no)")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        shared = args.climb.is_file()
        folder = unpack(args.climb, Path(scratch)) if shared else args.climb
        publish(folder, args.finding, args.force)
    return 0


def check_finding(finding: str) -> None:
    """Raise BadInput if there is no sentence in it."""
    if not any(map(str.isalnum, finding)):
        raise BadInput("the finding is empty: say in one sentence what the climb shows")


def publish(folder: Path, finding: str, force: bool = False) -> None:
    """Copy the logs, add the entry, make README.md anew. Raises BadInput, and changes nothing, if
    the climb may not be published or, without `force`, README.md would lose by it."""
    from ladder.commands.picture import draw  # matplotlib takes a second to import

    check_finding(finding)
    facts, rows = read_publishable(folder)
    target = new_target(facts)
    shown = target.relative_to(ROOT).as_posix()
    old, runlog = ((ROOT / page).read_text("utf-8") for page in ("README.md", "RUNLOG.md"))
    readme = with_results(old, shown, facts, rows, force)
    target.mkdir(parents=True)
    own = [name for name in facts["scripts"] if "/" not in name and name not in SCRIPTS]
    kept = [source(folder, name) for name in own]
    for path in (folder / "climb.json", *folder.glob("*.r*.log"), *kept):
        shutil.copy(path, target)
    draw(facts, rows, target / "climb.png")
    title, first, entries = runlog.partition("\n## ")
    new = f"{title}{entry(facts, rows, shown, finding)}{first}{entries}"
    write_atomic(ROOT / "RUNLOG.md", render(new).encode())
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


def with_results(readme: str, shown: str, facts: dict, rows: list[Row], force: bool) -> str:
    """README.md's text with this climb named in its results, if it begins with the baseline, on a
    CPU or GPU: it takes the place of one of the same machine, or the free one of its kind of
    device; with `force` of any. Raises BadInput if README.md would lose rungs or rounds by it, or
    have another B or T than the device has by default."""
    kind, rungs = device_kind(rows), rungs_of(rows)
    if facts["kind"] != "climb" or 0 not in rungs or kind == "mps":
        return readme
    named = {device_kind(old): (folder, old) for folder, old in climbs_in(readme)}
    better, old = named.get(kind, ("the ten rungs by default", []))
    if old and not force and first_log(old).run["device"] != first_log(rows).run["device"]:
        print("README.md's table stays that of another machine: --force replaces it")
        return readme
    needed = {n: len(row.logs) for n, row in rungs_of(old).items()} or dict.fromkeys(range(11), 1)
    fewer = any(n not in rungs or len(rungs[n].logs) < rounds for n, rounds in needed.items())
    if (fewer or not at_default_size(rows)) and not force:
        less = "fewer scripts or rounds, or another B and T, than"
        raise BadInput(f"README.md would show {less} {better}: --force replaces it")
    named[kind] = shown, rows
    folders = " ".join(named[kind][0] for kind in ("gpu", "cpu") if kind in named)
    return re.sub("<!-- (headline|rungs) .*? -->", rf"<!-- \1 {folders} -->", readme)


def device_kind(rows: list[Row]) -> str:
    """`cpu`, `mps` (an Apple GPU) or `gpu`."""
    name = first_log(rows).run["device"]
    apple = "mps" if name.startswith("Apple") else "gpu"
    return "cpu" if name.endswith(("thread)", "threads)")) else apple


def at_default_size(rows: list[Row]) -> bool:
    """Whether B and T are a device's own: on a GPU up to 16, by its memory, and 1024."""
    B, T = (int(first_log(rows).run[key]) for key in "BT")
    return T == 1024 and B <= 16 if device_kind(rows) == "gpu" else (B, T) == (4, 256)


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


def climbs_in(readme: str) -> list[tuple[str, list[Row]]]:
    """Folder and rows of each climb in README.md's table of rungs: a GPU's, then a CPU's."""
    found = next((m for m in BLOCK.finditer(readme) if m["kind"] == "rungs"), None)
    return [(folder, rows) for folder, _, rows in climbs_of(found)] if found else []


def reported() -> dict:
    """The one climb in README.md that is not ours."""
    return json.loads((ROOT / "docs" / "reported.json").read_text("utf-8"))


def headline(climbs: list) -> str:
    """What the ladder gains: as reported for a GPU, and in each of these climbs."""
    other = reported()
    first, last = other["ms"]["00"], other["ms"]["10"]
    lines = [
        f"- **{first / last:.0f} times** on {other['settings']}: {first} to {last} ms a step. "
        f"*Reported elsewhere*: [{other['what']}]({other['url']}) by {other['who']}, whose order "
        "the rungs follow."
    ]
    for folder, facts, rows in climbs:
        rungs, run = rungs_of(rows), first_log(rows).run
        base, top = rungs[0], rungs[max(rungs)]
        total, between = top.total, ""
        if total.low:
            between = f" ({total.low:.1f} to {total.high:.1f}, 95 % interval)"
        lines.append(
            f"- **{total.ratio:.1f} times**{between} on {run['device']}, B={run['B']}, "
            f"T={run['T']}: {base.tok_per_s:,.0f} to {top.tok_per_s:,.0f} tokens per second. "
            f"*Measured here*, {facts['repeats']} rounds of all scripts ([logs]({folder}))."
        )
    if "gpu" not in [device_kind(rows) for _, _, rows in climbs]:
        lines.append("- No GPU has been measured here yet: `ladder climb`, then `ladder share`.")
    return "\n".join(lines) + "\n"


def rungs_table(climbs: list) -> str:
    """Every rung with its one change and what that gains: as reported for a GPU, which is not ours,
    and in these climbs. A gain is over the rung before it in any order of a climb."""
    other = reported()
    head = ["rung", "the one change", "lines", f"*reported*: {other['settings']}"]
    for folder, _, rows in climbs:
        run = first_log(rows).run
        head.append(f"*measured*: [{run['device']}]({folder}), B={run['B']}, T={run['T']}")
    lines, before = [], None
    for above, path in pairwise([None, *all_scripts()]):
        fields = describe(path)
        line = [f"[{fields['Title'].partition(':')[0]}]({diff.shown(path)})"]
        line.append(re.split(r"\.(?: |$)", fields["Change"])[0])
        codes = [diff.code_lines(script) for script in (above, path) if script]
        changed = [line[0] for line in diff.changed_lines(*codes)] if above else []
        line.append(f"+{changed.count('+')} −{changed.count('-')}" if above else "")
        ms = other["ms"].get(fields["Title"][:2])
        more = f", {(before / ms - 1) * 100:+.0f} %" if before and ms else ""
        line.append(f"{ms} ms{more}" if ms else "CPU only" if cpu_only(path) else "")
        before = ms or before
        for _, _, rows in climbs:
            found = {row.stem: row for row in rows if row.logs}
            row, over = found.get(path.stem), found.get(above.stem if above else "")
            measured = gain(over, row) if row and over else None
            mark = "**" if measured and measured.significant else ""
            first = row and not above
            cell = f"{row.tok_per_s:.0f} tok/s" if first else f"{mark}{percent(measured)}{mark}"
            line.append(cell)
        lines.append(line)
    return f"{pipes(head, lines, left=2)}\n*Reported*: {other['note']}\n"


def machines_table(_) -> str:
    """A row for each machine under logs/, the fastest first: its newest climb from the baseline to
    rung 10 or above."""
    newest, lines = {}, []
    climbs = [(read_facts(p.parent), p.parent) for p in (ROOT / "logs").glob("*/climb.json")]
    for facts, folder in sorted(climbs, key=lambda one: (one[0]["started"], one[1])):
        if facts["kind"] == "climb" and "baseline.py" in facts["scripts"]:
            rungs = rungs_of(read_climb(folder)[1])
            if {0, 10} <= rungs.keys():
                newest[facts["device"]] = facts, folder, rungs
    for facts, folder, rungs in newest.values():
        top, run = max(rungs), rungs[0].log.run
        line = ["{device}, B={B}, T={T}".format(**run), run["torch"]]
        line += [f"{facts['peak_flops'] / 1e12:.3g}", str(facts["repeats"])]
        line += [f"{rungs[0].tok_per_s:.0f}", f"{rungs[10].tok_per_s:.0f}"]
        line += [
            f"{rungs[top].tok_per_s:.0f} ({top})",
            factor(rungs[top].total),
        ]
        lines.append([*line, f"[{facts['started'][:10]}]({folder.relative_to(ROOT).as_posix()})"])
    head = ["machine", "torch", "large half-precision matmul, TFLOP/s", "rounds"]
    head += ["tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    return pipes(head, sorted(lines, key=lambda line: -float(line[6].split()[0])), left=2)


MAKERS = {
    "headline": headline,
    "rungs": rungs_table,
    "machines": machines_table,
    "table": lambda climbs: markdown(*climbs[0][1:]),
}
