"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, and the
table and picture in README.md for this kind of device are made anew. The climb has to come from a
committed state, so that its logs name what was measured.
"""

import itertools
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

from ladder.commands.diff import changed_lines
from ladder.commands.kinds import BEYOND, KINDS
from ladder.commands.results import Row, read_climb, read_facts
from ladder.commands.scripts import ROOT, all_scripts, describe
from ladder.commands.tables import caption, markdown, percent, pipes
from ladder.errors import BadInput
from ladder.log import Log

# One climb: in README.md a block for each kind of device, in RUNLOG.md one in each entry.
BLOCK = re.compile(r"<!-- (?P<kind>[\w-]+) (?P<folder>\S+) -->\n.*?<!-- end -->", flags=re.DOTALL)
# Several climbs: the rungs with what they gain, and the machines.
OVERVIEW = re.compile(r"<!-- (?P<kind>rungs|machines) -->\n.*?<!-- end -->", flags=re.DOTALL)
DOCUMENTS = ("README.md", "RUNLOG.md")
# By what stands behind the device in a block's kind.
WHAT = {name: kind.what for name, kind in KINDS.items()}
WHAT |= {"": KINDS["climb"].what, "beyond": BEYOND, "part": "some scripts"}
# Columns of the tables in README.md, with the names that they have in ladder/commands/tables.py.
SHORT = {"rung": "rung", "ms": "ms / step", "tok/s": "tok/s", "gain": "gain"}
SHORT |= {"times the first": "total", "memory": "memory"}


def add_arguments(parser):
    parser.add_argument("folder", type=Path, help="a climb's folder, such as runs/climb-…")
    parser.add_argument("finding", help="what it shows, in one sentence")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    publish(args.folder, args.finding)
    return 0


def publish(folder: Path, finding: str) -> None:
    """Copy, prepend, redraw. Raises BadInput, and changes nothing, if the climb is not fit."""
    facts, rows = read_climb(folder)
    check(folder, facts, rows)
    target = new_target(folder, facts)
    runlog, readme = ROOT / "RUNLOG.md", ROOT / "README.md"
    title, first, entries = runlog.read_text(encoding="utf-8").partition("\n## ")
    target.mkdir(parents=True)
    # What an ablation made can be made again: ablate.source_at.
    scripts = [] if facts["kind"] == "ablate" else folder.glob("*.py")
    for path in [*folder.glob("*.r*.log"), *scripts, folder / "climb.json", folder / "climb.png"]:
        shutil.copy(path, target)
    shown, what = target.relative_to(ROOT).as_posix(), kind(facts, rows)
    runlog.write_text(f"{title}{entry(facts, rows, shown, finding)}{first}{entries}", "utf-8")
    text = readme.read_text(encoding="utf-8")
    text, found = re.subn(rf"<!-- {what} \S+ -->", f"<!-- {what} {shown} -->", text)
    readme.write_text(render(text), encoding="utf-8")
    print(f"published in {shown}, RUNLOG.md{' and README.md' if found else ''}: read, then commit")
    if not found:
        print(f"README.md has no block <!-- {what} … -->: put one in to show it there")


def new_target(folder: Path, facts: dict) -> Path:
    """Where in logs/ this climb goes: the day's second one on a machine gets a `-2`."""
    device = re.sub(r"[^a-z0-9]+", "-", facts["device"].lower()).strip("-")
    name = f"{facts['started'][:10]}-{device}-{facts['kind']}"
    for number in itertools.count(1):
        target = ROOT / "logs" / (name if number == 1 else f"{name}-{number}")
        if not target.exists():
            return target
        if (target / "climb.json").read_bytes() == (folder / "climb.json").read_bytes():
            raise BadInput(f"{folder} is published already, as {target.relative_to(ROOT)}")


def check(folder: Path, facts: dict, rows: list[Row]) -> None:
    """Raise BadInput unless this climb may stand in the repository."""
    run = next((log.run for row in rows for log in row.logs.values()), None)
    if not facts or not run:
        raise BadInput(f"{folder} is no finished climb: it has no climb.json or no logs")
    if "after" not in facts["clocks"] or not (folder / "climb.png").exists():
        raise BadInput(f"{folder} was stopped: finish it with ladder climb --resume {folder}")
    if run["model"] != "gpt2":
        raise BadInput(f"{folder} climbed with {run['model']}: only gpt2 (124M) is published")
    if not re.fullmatch("[0-9a-f]{12}", run["commit"]):
        raise BadInput(f"{folder} was climbed at {run['commit']}: commit first, climb again")
    if facts["data"] or run["data"] != "tinyshakespeare":
        raise BadInput(f"{folder} was climbed on other text than tinyshakespeare")


def kind(facts: dict, rows: list[Row]) -> str:
    """Which block of README.md a climb is for: `cpu`, `mps` or `gpu`; or what has none there:
    `cpu-ablate`, `-peers`, `-beyond` (rungs from 10 on) or `-part` (other scripts)."""
    name = first_log(rows).run["device"]
    apple = "mps" if name.startswith("Apple") else "gpu"
    device = "cpu" if name.endswith("threads)") else apple
    stems, known = [row.stem for row in rows], [path.stem for path in all_scripts()]
    if facts["kind"] != "climb":
        return f"{device}-{facts['kind']}"
    if stems[0] == known[0]:
        return device
    return f"{device}-beyond" if stems == known[10 : 10 + len(stems)] else f"{device}-part"


def first_log(rows: list[Row]) -> Log:
    """One log of a climb: its run line is that of all of them, but for the script."""
    return next(log for row in rows for log in row.logs.values())


def entry(facts: dict, rows: list[Row], shown: str, finding: str) -> str:
    """The entry of RUNLOG.md for one climb."""
    log = first_log(rows)
    warmup, measured = log.result["warmup_steps"], log.result["measured_steps"]
    what = WHAT[kind(facts, rows).partition("-")[2]]
    block = render(f"<!-- table {shown} -->\n<!-- end -->")
    return f"""
## {facts["started"][:10]}: {facts["device"]}: {what}

{caption(facts, rows)}; {facts["system"]}, {facts["cores"]} cores, clocks before: \
{facts["clocks"]["before"]}, after: {facts["clocks"]["after"]}; {facts["repeats"]} rounds, \
interleaved; {warmup} warm-up steps left out of each run, {measured} measured.

**Finding:** {finding}

Raw logs: `{shown}`

{block}
"""


def render(text: str) -> str:
    """`text` with every block between markers made anew from the logs that the marker names."""
    text = BLOCK.sub(lambda match: block(match["kind"], match["folder"]), text)
    made = {"rungs": lambda: rungs_table(text), "machines": machines_table}
    return OVERVIEW.sub(lambda m: f"<!-- {m['kind']} -->\n{made[m['kind']]()}<!-- end -->", text)


def block(kind: str, folder: str) -> str:
    """The block of one climb: caption, picture and a short table, or for RUNLOG.md all columns."""
    head = f"<!-- {kind} {folder} -->\n"
    if folder == "none":
        device, _, what = kind.partition("-")
        device = {"gpu": "CUDA", "cpu": "CPU"}[device]
        return f"{head}**{device}: {WHAT[what]} is not measured yet.**\n<!-- end -->"
    facts, rows = read_climb(ROOT / folder)
    if kind == "table":
        return f"{head}{markdown(facts, rows)}<!-- end -->"
    head += f"{caption(facts, rows)}.\n\n"
    if (ROOT / folder / "climb.png").exists():
        head += f"![Tokens per second of each rung]({folder}/climb.png)\n\n"
    short = SHORT if facts["kind"] == "climb" else None  # other kinds have other gains
    return f"{head}{markdown(facts, rows, short)}<!-- end -->"


def rungs_table(text: str) -> str:
    """Every rung with its one change and what that gains: in the climbs of the blocks in `text`
    (of README.md where it has none), and in docs/reported.json, which is not ours."""
    blocks = [*BLOCK.finditer(text)] or [*BLOCK.finditer((ROOT / "README.md").read_text("utf-8"))]
    named = [m for m in blocks if m["kind"] in ("cpu", "gpu") and m["folder"] != "none"]
    named.sort(key=lambda match: match["kind"])
    climbs = [read_climb(ROOT / match["folder"])[1] for match in named]
    other = json.loads((ROOT / "docs" / "reported.json").read_text("utf-8"))
    link = f"({other['url']})"
    head = ["rung", "the one change", "lines changed"]
    for rows in climbs:
        head.append("gain *measured here*: {device}, B={B}, T={T}".format(**first_log(rows).run))
    head.append(f"*reported elsewhere*, not ours: [{other['who']}, {other['settings']}]{link}")
    lines, before = [], None
    for above, path in pairwise([None, *all_scripts()]):
        fields, name = describe(path), path.relative_to(ROOT).as_posix()
        changed = [line[0] for line in changed_lines(above, path)] if above else []
        line = [f"[{fields['Title'].partition(':')[0]}]({name})"]
        line.append(re.split(r"\.(?: |$)", fields["Change"])[0])
        line.append(f"+{changed.count('+')} −{changed.count('-')}" if above else "")
        for rows in climbs:
            found = [row for row in rows if row.stem == path.stem]
            line.append(short_gain(found[0]) if found else "")
        ms = other["ms"].get(fields["Title"][:2])
        gain = f", {(before / ms - 1) * 100:+.0f} %" if before and ms else ""
        line.append(f"{ms} ms{gain}" if ms else "")
        before = ms or before
        lines.append(line)
    note = f"[{other['what']}]{link} by {other['who']}, {other['settings']}. {other['note']}"
    return f"{pipes(head, lines, left=2)}\n*Reported elsewhere*: {note}\n"


def short_gain(row: Row) -> str:
    """The gain without its interval."""
    return "failed" if row.failure else percent(row.gain, row).partition(" (")[0]


def machines_table() -> str:
    """A row for each machine under logs/, the fastest first: its newest climb from the baseline to
    rung 10 or above, at the B and T that its device has by default."""
    known, newest = [path.stem for path in all_scripts()], {}
    for path in sorted((ROOT / "logs").glob("*/climb.json")):
        facts = read_facts(path.parent)
        stems = {Path(name).stem for name in facts["scripts"]}
        if not {known[0], known[10]} <= stems or facts["kind"] != "climb":
            continue
        rungs = {row.stem: row for row in read_climb(path.parent)[1] if not row.failure}
        if {known[0], known[10]} <= rungs.keys() and at_default_size(facts):
            device = first_log([rungs[known[0]]]).run["device"]
            if device not in newest or newest[device][0]["started"] <= facts["started"]:
                newest[device] = facts, path.parent.relative_to(ROOT).as_posix(), rungs
    lines = []
    for facts, folder, rungs in newest.values():
        top = max(rungs.keys() & set(known), key=known.index)
        base, ten, top = (rungs[stem] for stem in (known[0], known[10], top))
        run = first_log([base]).run
        rates = [f"{row.tok_per_s:.0f}" for row in (base, ten, top)]
        ratio = top.total.ratio if top.total else top.tok_per_s / base.tok_per_s
        date = f"[{facts['started'][:10]}]({folder})"
        number = known.index(top.stem)
        lines.append(["{device}, B={B}, T={T}".format(**run), run["torch"], *rates[:2]])
        lines[-1] += [f"{rates[2]} ({number})", f"{ratio:.2f}×", date]
    head = ["machine", "torch", "tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    return pipes(head, sorted(lines, key=lambda line: -float(line[4].split()[0])), left=2)


def at_default_size(facts: dict) -> bool:
    """Whether a climb left B and T at what its device has by default."""
    return not any(flag.startswith(("--batch-size", "--seq-len")) for flag in facts["flags"])


def shown_climbs() -> list[Path]:
    """The folders that README.md names, then the newest ablation, peers and climb beyond ten that
    RUNLOG.md names."""
    readme, runlog = (BLOCK.finditer((ROOT / name).read_text("utf-8")) for name in DOCUMENTS)
    found = {ROOT / m["folder"]: m["kind"] for m in readme if m["folder"] != "none"}
    for match in runlog:  # newest first
        facts, rows = read_climb(folder := ROOT / match["folder"])
        what = kind(facts, rows) if facts and at_default_size(facts) else "part"
        if "-" in what and not what.endswith("part") and what not in found.values():
            found[folder] = what
    return list(found)
