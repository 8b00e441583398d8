"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"
    ladder publish 2026-11-21-nvidia-h100-climb.tar.gz "…"      what `ladder share` packed elsewhere

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, and
README.md is made anew: its table of machines, and its table and picture for this kind of device,
unless they are of another machine. The climb has to come from a committed state, so that its logs
name what was measured.
"""

import itertools
import json
import math
import os
import re
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

from ladder.commands import diff
from ladder.commands.kinds import BEYOND, KINDS
from ladder.commands.results import Row, read_climb, read_facts
from ladder.commands.scripts import ROOT, all_scripts, describe, low_precision
from ladder.commands.share import FACTS, PACKED, find_wrong, unpack
from ladder.commands.tables import caption, markdown, percent, pipes
from ladder.errors import BadInput
from ladder.files import git
from ladder.log import Log

# One climb: in README.md a block for each kind of device, in RUNLOG.md one in each entry.
BLOCK = re.compile(r"<!-- (?P<kind>[\w-]+) (?P<folder>\S+) -->\n.*?<!-- end -->", flags=re.DOTALL)
# Several climbs: the top of each, the rungs with what they gain, and the machines.
OVERVIEW = re.compile(
    r"<!-- (?P<kind>headline|rungs|machines) -->\n.*?<!-- end -->", flags=re.DOTALL
)
PAGES = ("README.md", "RUNLOG.md")
# By what stands behind the device in a block's kind.
WHAT = {name: kind.what for name, kind in KINDS.items()}
WHAT |= {"": KINDS["climb"].what, "beyond": BEYOND, "part": "some scripts"}
# Columns of the tables in README.md, with the names that they have in ladder/commands/tables.py.
SHORT = {"rung": "rung", "ms": "ms / step", "tok/s": "tok/s", "gain": "gain"}
SHORT |= {"times the first": "total", "memory": "memory"}


def add_arguments(parser):
    parser.add_argument("climb", type=Path, help="its folder, or a file that ladder share wrote")
    parser.add_argument("finding", help="what it shows, in one sentence")
    parser.add_argument("--force", action="store_true", help="replace a better table in README.md")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if not args.climb.is_file():
        publish(args.climb, args.finding, args.force)
        return 0
    try:
        with args.climb.open("rb") as file:
            packed = file.read(PACKED + 1)
    except OSError as error:
        raise BadInput(f"cannot read {args.climb}: {error.strerror}") from error
    with tempfile.TemporaryDirectory() as scratch:
        unpack(packed, Path(scratch), args.climb)
        commit = read_facts(Path(scratch))["commit"]
        if git("cat-file", "-e", f"{commit}^{{commit}}").returncode:
            raise BadInput(f"{args.climb} was climbed at {commit}, which this checkout lacks")
        publish(Path(scratch), args.finding, args.force, args.climb)
    return 0


def publish(folder: Path, finding: str, force: bool = False, name: Path | None = None) -> None:
    """Copy, prepend, redraw. Raises BadInput, and changes nothing, if the climb is not fit, or,
    without `force`, if README.md would lose by it. `name` is what messages call the climb."""
    from ladder.commands.picture import draw  # matplotlib takes a second to import

    facts, rows = fit(folder, name)
    old = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
    target = new_target(folder, facts, name or folder)
    shown = target.relative_to(ROOT).as_posix()
    readme = place(old["README.md"], shown, facts, rows, force)
    title, first, entries = old["RUNLOG.md"].partition("\n## ")
    try:
        target.mkdir(parents=True)
        # What an ablation made can be made again: ablate.source_at.
        scripts = [] if facts["kind"] == "ablate" else folder.glob("*.py")
        for path in [*folder.glob("*.r*.log"), *scripts, folder / "climb.json"]:
            shutil.copy(path, target)
        draw(facts, rows, target / "climb.png")
        new = {"RUNLOG.md": f"{title}{entry(facts, rows, shown, finding)}{first}{entries}"}
        new["README.md"] = render(readme)
        for page, text in new.items():  # both are on the disk before one takes its place
            (target / page).write_bytes(text.encode())
        for page in new:
            os.replace(target / page, ROOT / page)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, UnicodeEncodeError):
            raise BadInput(f"the finding has a character that UTF-8 lacks: {finding!a}") from None
        if isinstance(error, OSError):
            raise BadInput(f"cannot write {error.filename}: {error.strerror}") from error
        raise
    changed = " and ".join(page for page in PAGES if new[page] != old[page])
    print(f"published in {shown}, {changed}: read, then commit")
    if readme == old["README.md"] and f"<!-- {kind(facts, rows)} " in readme:
        print("README.md's table stays that of another machine: --force replaces it")


def fit(folder: Path, name: Path | None = None) -> tuple[dict, list[Row]]:
    """climb.json and the rows of a climb that may stand in the repository; no link is followed.

    Raises BadInput if it may not. Messages call it `name`.
    """
    name = name or folder
    for path in folder.glob("*"):
        if path.suffix in (".json", ".log", ".py") and (path.is_symlink() or not path.is_file()):
            raise BadInput(f"{path} is not a regular file: remove it")
    if inexact := [path.stem for path in folder.glob("*.py") if low_precision(path)]:
        raise BadInput(f"{name} has {inexact[0]}: low precision is in no table with exact ones")
    if not (folder / "climb.json").exists():
        raise BadInput(f"{name} holds no logs of a climb: it has no climb.json")
    facts = read_facts(folder)
    if wrong := find_wrong(facts, FACTS):
        raise BadInput(f"{name}: climb.json: {wrong} is not as ladder climb writes it")
    try:
        _, rows = read_climb(folder)
        check(name, facts, rows)
        markdown(facts, rows)
        if not all(0 < row.tok_per_s < math.inf for row in rows if not row.failure):
            raise ValueError("a step took no time")
    except BadInput as error:
        raise BadInput(str(error).replace(str(folder), str(name))) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInput(f"{name} has a log that is not of this ladder: {error!r}") from error
    return facts, rows


def check(name: Path, facts: dict, rows: list[Row]) -> None:
    """Raise BadInput unless this climb may stand in the repository."""
    if not any(row.logs for row in rows):
        raise BadInput(f"{name} holds no logs of a climb: all its runs failed")
    run = first_log(rows).run
    if facts.get("quick"):
        raise BadInput(f"{name} is a quick climb: publish one without --quick")
    if "after" not in facts["clocks"]:
        raise BadInput(f"{name} was stopped: finish it with ladder climb --resume {name}")
    if run["model"] != "gpt2":
        raise BadInput(f"{name} climbed with {run['model']}: only gpt2 (124M) is published")
    if run["commit"] != facts["commit"]:
        raise BadInput(f"{name}: its logs are of {run['commit']}, climb.json of {facts['commit']}")
    if not re.fullmatch("[0-9a-f]{12}", run["commit"]):
        raise BadInput(f"{name} was climbed at {run['commit']}: commit first, climb again")
    if facts["data"] or run["data"] != "tinyshakespeare":
        raise BadInput(f"{name} was climbed on other text than tinyshakespeare")


def new_target(folder: Path, facts: dict, name: Path) -> Path:
    """Where in logs/ this climb goes: the day's second one on a machine gets a `-2`."""
    for number in itertools.count(1):
        target = ROOT / "logs" / (slug(facts) if number == 1 else f"{slug(facts)}-{number}")
        if not target.exists():
            return target
        there = target / "climb.json"
        if there.is_file() and there.read_bytes() == (folder / "climb.json").read_bytes():
            raise BadInput(f"{name} is published already, as {target.relative_to(ROOT)}")


def slug(facts: dict) -> str:
    """What a climb is called in logs/."""
    device = re.sub(r"[^a-z0-9]+", "-", facts["device"].lower()).strip("-")
    return f"{facts['started'][:10]}-{device}-{facts['kind']}"


def place(readme: str, shown: str, facts: dict, rows: list[Row], force: bool) -> str:
    """README.md's text with this climb in the block of its kind of device, if there is one: it
    takes the place of a climb of the same machine, or of `none`.

    Raises BadInput if the table would lose rungs or rounds, or has another B or T than the device
    has by default. With `force` it is replaced all the same, whatever machine it is of.
    """
    for match in BLOCK.finditer(readme):
        if match["kind"] != kind(facts, rows):
            continue
        what, rounds = "all scripts up to rung 10 at the default B and T", 1
        stems = {path.stem for path in all_scripts()[:11]}
        if match["folder"] != "none":
            old = read_climb(ROOT / match["folder"])[1]
            if not force and first_log(old).run["device"] != first_log(rows).run["device"]:
                continue
            what, stems, rounds = f"{match['folder']} ({size(old)})", *stems_and_rounds(old)
        new_stems, new_rounds = stems_and_rounds(rows)
        worse = stems - new_stems or new_rounds < rounds or not at_default_size(facts)
        if worse and not force:
            news = f"README.md would show {size(rows)} instead of {what}"
            raise BadInput(f"{news}: --force replaces it")
        a, b = match.span()
        return readme[:a] + match[0].replace(match["folder"], shown, 1) + readme[b:]
    return readme


def stems_and_rounds(rows: list[Row]) -> tuple[set[str], int]:
    """The scripts of a climb that ran, and how many rounds all of them have."""
    good = [row for row in rows if row.logs]
    return {row.stem for row in good}, min(len(row.logs) for row in good)


def size(rows: list[Row]) -> str:
    """How large a climb is, in words."""
    stems, rounds = stems_and_rounds(rows)
    words = "{} scripts at B={B}, T={T} in {} round{}"
    return words.format(len(stems), rounds, "s" * (rounds > 1), **first_log(rows).run)


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
    clocks = {when: "; ".join(rates.split("\n")) for when, rates in facts["clocks"].items()}
    block = render(f"<!-- table {shown} -->\n<!-- end -->")
    return f"""
## {facts["started"][:10]}: {facts["device"]}: {what}

{caption(facts, rows)}; {facts["system"]}, {facts["cores"]} cores, clocks before: \
{clocks["before"]}, after: {clocks["after"]}; {facts["repeats"]} rounds, \
interleaved; {warmup} warm-up steps left out of each run, {measured} measured.

**Finding:** {" ".join(finding.split())}

Raw logs: `{shown}`

{block}
"""


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    text = BLOCK.sub(lambda match: block(match["kind"], match["folder"]), text)
    made = {"headline": lambda: headline(text), "rungs": lambda: rungs_table(text)}
    made["machines"] = machines_table
    return OVERVIEW.sub(lambda m: f"<!-- {m['kind']} -->\n{made[m['kind']]()}<!-- end -->", text)


def block(kind: str, folder: str) -> str:
    """The block of one climb: caption and a short table, or for RUNLOG.md all columns."""
    head = f"<!-- {kind} {folder} -->\n"
    if folder == "none":
        device, _, what = kind.partition("-")
        device = {"gpu": "CUDA", "cpu": "CPU"}[device]
        return f"{head}**{device}: {WHAT[what]} is not measured yet.**\n<!-- end -->"
    facts, rows = read_climb(ROOT / folder)
    if kind == "table":
        return f"{head}{markdown(facts, rows)}<!-- end -->"
    head += f"{caption(facts, rows)} ([raw logs]({folder})).\n\n"
    short = SHORT if facts["kind"] == "climb" else None  # other kinds have other gains
    return f"{head}{markdown(facts, rows, short)}<!-- end -->"


def climbs_in(text: str) -> list[tuple[str, list[Row]]]:
    """Folder and rows of each climb with a block in `text`, or in README.md if that has none; CPUs
    first."""
    blocks = [*BLOCK.finditer(text)] or [*BLOCK.finditer((ROOT / "README.md").read_text("utf-8"))]
    named = [m for m in blocks if m["kind"] in ("cpu", "gpu") and m["folder"] != "none"]
    named.sort(key=lambda match: match["kind"])
    return [(match["folder"], read_climb(ROOT / match["folder"])[1]) for match in named]


def headline(text: str) -> str:
    """What rung 10 and the last one reach in each of climbs_in(text), GPUs first, and a picture."""
    found, lines = climbs_in(text)[::-1], []
    for _, rows in found:
        good = [row for row in rows if not row.failure]
        words = f"{first_log(rows).run['device']}: {good[0].tok_per_s:,.0f} tokens per second"
        for row in [*(row for row in good[1:-1] if row.stem == all_scripts()[10].stem), good[-1]]:
            ratio = row.total.ratio if row.total else row.tok_per_s / good[0].tok_per_s
            number = row.stem.partition("_")[0]
            words += f"; up to rung {number}: {row.tok_per_s:,.0f}, {ratio:.1f}×"
        if good[-1].total:  # not the quotient of the two rates
            words += f" (mean of {good[-1].total.rounds} rounds)"
        lines.append(f"**{words}**")
    picture = f"![Tokens per second of each rung]({found[0][0]}/climb.png)" if found else ""
    return "\\\n".join(lines) + f"\n\n{picture}\n"


def rungs_table(text: str) -> str:
    """Every rung with its one change and what that gains: in climbs_in(text), and in
    docs/reported.json, which is not ours."""
    climbs = [rows for _, rows in climbs_in(text)]
    other = json.loads((ROOT / "docs" / "reported.json").read_text("utf-8"))
    link = f"({other['url']})"
    head = ["rung", "the one change", "lines changed"]
    for rows in climbs:
        head.append("gain *measured here*: {device}, B={B}, T={T}".format(**first_log(rows).run))
    head.append(f"*reported elsewhere*, not ours: [{other['who']}, {other['settings']}]{link}")
    lines, before = [], None
    for above, path in pairwise([None, *all_scripts()]):
        fields = describe(path)
        codes = [diff.code_lines(script) for script in (above, path) if script]
        changed = [line[0] for line in diff.changed_lines(*codes)] if above else []
        line = [f"[{fields['Title'].partition(':')[0]}]({diff.shown(path)})"]
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
