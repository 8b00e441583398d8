"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"
    ladder publish 2026-11-21-nvidia-h100-climb.json.gz "…"     what `ladder share` packed elsewhere

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, and
README.md is made anew: its table of machines, its headline and gains for this kind of device
(unless they are of another machine) and its results, a GPU's or else a CPU's. The climb has to come
from a committed state, so that its logs name what was measured.
"""

import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from ladder.commands import diff, results
from ladder.commands.kinds import KINDS
from ladder.commands.limits import PARTS, work
from ladder.commands.results import CAPTION, FACTS, NAME, Row, first_log, read_climb, read_facts
from ladder.commands.scripts import ROOT, all_scripts, describe, low_precision, peer_scripts
from ladder.commands.tables import WHY_NOT_COMPILED, caption, markdown, not_compiled, percent, pipes
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import COMMITTED, git, lock, write_whole
from ladder.machine import find_gpu

# The table of one climb: in README.md its `results`, which name a climb on a GPU, one on a CPU or
# both and show the first; in RUNLOG.md a `table` in each entry.
BLOCK = re.compile(
    r"<!-- (?P<kind>results|table) (?P<folder>\S+)(?P<other> \S+)? -->\n.*?<!-- end -->",
    flags=re.DOTALL,
)
# Several climbs: the top of each, the rungs with what they gain, and the machines.
OVERVIEW = re.compile(
    r"<!-- (?P<kind>headline|rungs|machines) -->\n.*?<!-- end -->", flags=re.DOTALL
)
PAGES = ("README.md", "RUNLOG.md")
# Columns of the results in README.md, and their headings there.
SHORT = {"rung": "rung", "ms / step": "ms", "tok/s": "tok/s", "gain": "gain"}
SHORT |= {"total": "times the first", "memory": "memory"}


def add_arguments(parser):
    parser.add_argument("climb", type=Path, help="its folder, or a file that ladder share wrote")
    parser.add_argument("finding", help="what it shows, in one sentence")
    parser.add_argument("--force", action="store_true", help="replace a better table (default: no)")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    from ladder.commands.share import unpack  # it takes `fit` from here

    if not args.climb.is_file():
        publish(args.climb, args.finding, args.force)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        try:
            unpack(args.climb, Path(scratch))
            facts = read_facts(Path(scratch))
            tree = git("ls-tree", "-r", "--name-only", commit := facts["commit"])
            if tree.returncode:
                raise BadInput(f"{scratch} was climbed at {commit}, which this checkout lacks")
            for name in facts["scripts"]:
                if name.replace("without_", "speedups/") not in tree.stdout.split("\n"):
                    raise BadInput(f"{scratch} has {name}, which is not in commit {commit}")
            publish(Path(scratch), args.finding, args.force)
        except BadInput as error:
            raise BadInput(str(error).replace(scratch, str(args.climb))) from error
    return 0


def publish(folder: Path, finding: str, force: bool = False) -> None:
    """Copy, prepend, redraw. Raises BadInput, and changes nothing, if the climb is not fit, or,
    without `force`, if README.md would lose by it."""
    check_finding(finding)
    from ladder.commands.picture import draw  # matplotlib takes a second to import

    facts, rows = fit(folder)
    with closing(lock(ROOT / "logs")):
        kept = {page: (ROOT / page).read_bytes() for page in PAGES}
        old = {page: (ROOT / page).read_text("utf-8", "surrogateescape") for page in PAGES}
        target = new_target(folder, facts, old["RUNLOG.md"])
        shown = target.relative_to(ROOT).as_posix()
        readme = place(old["README.md"], shown, facts, rows, force)
        title, first, entries = old["RUNLOG.md"].partition("\n## ")
        target.mkdir(parents=True)
        try:
            # What an ablation made can be made again: ablate.source_at.
            scripts = [] if facts["kind"] == "ablate" else folder.glob("*.py")
            # climb.json first: by it new_target knows what a killed publish left.
            for path in [folder / "climb.json", *folder.glob("*.r*.log"), *scripts]:
                shutil.copy(path, target)
            draw(facts, rows, target / "climb.png")
            new = {"RUNLOG.md": f"{title}{entry(facts, rows, shown, finding)}{first}{entries}"}
            new["README.md"] = render(readme)
            for page, text in new.items():  # both are on the disk before one takes its place
                (target / page).write_bytes(text.encode(errors="surrogateescape"))
            for page in new:
                os.replace(target / page, ROOT / page)
        except BaseException:
            for page, text in kept.items():
                if (ROOT / page).read_bytes() != text:
                    write_whole(ROOT / page, text)
            shutil.rmtree(target, ignore_errors=True)
            raise
        changed = " and ".join(page for page in PAGES if new[page] != old[page])
        print(f"published in {shown}, {changed}: read, then commit")
        if readme == old["README.md"] and belongs(facts, rows):
            print("README.md's table stays that of another machine: --force replaces it")


def check_finding(finding: str) -> None:
    """Raise BadInput if no sentence can be printed from it."""
    if not any(map(str.isalnum, finding)):
        raise BadInput("the finding is empty: say in one sentence what the climb shows")
    if not " ".join(finding.split()).isprintable():
        raise BadInput(f"the finding has a character that cannot be printed: {finding!a}")


def fit(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json and the rows of a climb. Raises BadInput if it may not stand in the repository."""
    facts, rows = read_climb(folder)
    if why := next(faults(folder, facts, rows), ""):
        raise BadInput(f"{folder} {why}")
    return facts, rows


def faults(folder: Path, facts: dict, rows: list[Row]) -> Iterator[str]:
    """Why a climb may not stand in the repository."""
    logs = [(f"{r.stem}.r{k}", r.stem, log) for r in rows for k, log in r.logs.items()]
    if not facts or not logs:
        why = "all its runs failed" if facts else "it has no climb.json"
        yield f"holds no logs of a climb: {why}"
    rungs = {path.stem: diff.shown(path) for path in [*all_scripts(), *peer_scripts()]}
    for path in folder.glob("*.py"):
        if low_precision(path):
            yield f"has {path.stem}: low precision is in no table with exact ones"
        if path.stem in rungs:
            yield f"has {path.name}, with the name of a rung: climb under another name"
    if facts.get("quick"):
        yield "is a quick climb: publish one without --quick"
    if "after" not in facts["clocks"]:
        yield f"was stopped: finish it, ladder climb --resume {folder}"
    run, commit = first_log(rows).run, facts["commit"]
    for key in CAPTION:
        if not re.fullmatch(NAME, run[key], flags=re.ASCII):
            yield f"has logs with {key} {run[key]!r:.40}: such characters are not published"
    sizes = {"batch-size": "B", "seq-len": "T", "steps": "steps", "seed": "seed"}
    for flag, _, value in (flag[2:].partition("=") for flag in facts["flags"]):
        if flag in sizes and value != run[sizes[flag]]:
            yield f"has --{flag}={value}, but its logs have {run[sizes[flag]]}"
    if int(run["steps"]) < 3:
        yield f"has runs of {run['steps']} steps; 2 steps are no measurement"
    if run["model"] != "gpt2":
        yield f"climbed with {run['model']}: only gpt2 (124M) is published"
    for key in ("commit", "device"):
        if run[key] != facts[key]:
            yield f"has logs of {run[key]}, and climb.json is of {facts[key]!r:.80}"
    if not COMMITTED.fullmatch(commit):
        yield f"was climbed at {commit}: commit, climb again"
    text = run["data"], run.get("data_sha256")
    if facts.get("data") or text != ("tinyshakespeare", TINYSHAKESPEARE_SHA256[:12]):
        yield "was climbed on other text than tinyshakespeare"
    if not re.match(KINDS[facts["kind"]].scripts, " ".join(facts["scripts"])):
        yield f"has the kind {facts['kind']}, but not the scripts of one"
    asked = set()
    for name in facts["scripts"]:
        stem = Path(name).stem
        asked |= {f"{stem}.r{k}" for k in range(1, facts["repeats"] + 1)}
        if rungs.get(stem, name) != name or not re.fullmatch(NAME, name):
            yield f"has the script {name!r:.80}, which is not the rung"
    ran, failed = {name for name, *_ in logs}, facts["failures"].keys()
    if runs := asked ^ (ran | failed) | ran & failed:
        yield f"has other runs than climb.json asks for: {', '.join(sorted(runs)):.80}"
    if eager := [row.stem for row in rows if not_compiled(row)]:
        yield f"has {eager[0]}, in which nothing was compiled: {WHY_NOT_COMPILED}"
    formula = 6 * 124e6 + 12 * 12 * 768 * int(run["T"])  # FLOPs per token of the 124M model
    gpu = find_gpu(run["device"])
    peak = gpu and gpu.bf16 and f"{gpu.bf16 * 1e12:.4g}"  # as the mfu line has it
    for name, stem, log in logs:
        if Path(log.run["script"]).stem != stem:
            yield f"has {name}.log, which is of another script"
        if "total_batch" in log.run and stem != "ddp_run":
            yield f"has {name}.log with total_batch, which only ddp_run.py has"
        if log.mfu["peak_flops"] not in ("unknown", peak):
            yield f"has {name}.log with the peak of a GPU that is in no table, or of another"
        if not 0.9 < int(log.mfu["flops_per_token"]) / formula < 1.1:
            yield f"has {name}.log with a flops_per_token that no GPT-2 124M has"


def new_target(folder: Path, facts: dict, runlog: str) -> Path:
    """Where in logs/ this climb goes: the day's second one on a machine gets a `-2`."""
    for path in sorted((ROOT / "logs").glob("*/climb.json")):
        shown = path.parent.relative_to(ROOT).as_posix()
        if f"<!-- table {shown} -->" not in runlog:  # it may be the only copy: nothing is deleted
            why = "RUNLOG.md no entry for it, as after a publish that was killed"
            raise BadInput(f"{shown} has a climb, but {why}: move it elsewhere first")
    climb = {key: facts.get(key) for key in FACTS if key != "failures"}  # share shortens these
    for number in itertools.count(1):
        target = ROOT / "logs" / (slug(facts) if number == 1 else f"{slug(facts)}-{number}")
        if not target.exists():
            return target
        there = read_facts(target)
        if {key: there.get(key) for key in climb} == climb:
            shown = target.relative_to(ROOT).as_posix()
            late = (target / "README.md").exists()  # killed when RUNLOG.md had taken its place
            rest = f", but for README.md: mv {shown}/README.md README.md" if late else ""
            raise BadInput(f"{folder} is published already, as {shown}{rest}")


def slug(facts: dict) -> str:
    """What a climb is called in logs/."""
    device = re.sub(r"[^a-z0-9]+", "-", facts["device"].lower()).strip("-")
    return f"{facts['started'][:10]}-{device}-{facts['kind']}"


def place(readme: str, shown: str, facts: dict, rows: list[Row], force: bool) -> str:
    """README.md's text with this climb named in its results, if it belongs there: it takes the
    place of a climb of the same machine, or the free one of its kind of device.

    Raises BadInput if README.md would lose rungs or rounds, or has another B or T than the device
    has by default. With `force` it is replaced all the same, whatever machine it is of.
    """
    marks = re.findall("<!-- (?:(end)|headline|rungs|machines|results|table) ", readme)
    match = next((m for m in BLOCK.finditer(readme) if m["kind"] == "results"), None)
    if not match or marks != ["", "end"] * (len(marks) // 2):
        why = "a block without its begin or <!-- end -->" if match else "no block of results"
        raise BadInput(f"README.md has {why}: restore it, see git diff README.md")
    if not belongs(facts, rows):
        return readme
    named = {device_kind(rows): (folder, rows) for folder, rows in climbs_in(readme)}
    better, needed = "the ten rungs by default", {path.stem: 1 for path in all_scripts()[:11]}
    if device_kind(rows) in named:
        better, old = named[device_kind(rows)]
        if not force and first_log(old).run["device"] != first_log(rows).run["device"]:
            return readme
        needed = rounds(old)
    fewer = any(rounds(rows).get(stem, 0) < n for stem, n in needed.items())
    if (fewer or not at_default_size(facts, rows)) and not force:
        less = "fewer scripts or rounds, or another B and T, than"
        raise BadInput(f"README.md would show {less} {better}: --force replaces it")
    named[device_kind(rows)] = shown, rows
    folders = " ".join(named[kind][0] for kind in ("gpu", "cpu") if kind in named)
    return readme.replace(match[0], f"<!-- results {folders} -->\n<!-- end -->")


def rounds(rows: list[Row]) -> dict[str, int]:
    """How many rounds there are of each script that ran."""
    return {row.stem: len(row.logs) for row in rows if row.logs}


def device_kind(rows: list[Row]) -> str:
    """`cpu`, `mps` (an Apple GPU) or `gpu`."""
    name = first_log(rows).run["device"]
    apple = "mps" if name.startswith("Apple") else "gpu"
    return "cpu" if name.endswith(("thread)", "threads)")) else apple


def what_it_is(facts: dict, rows: list[Row]) -> str:
    """What RUNLOG.md calls a climb: it may be of some scripts only, or of rungs from 10 on."""
    stems, known = [row.stem for row in rows], [path.stem for path in all_scripts()]
    if facts["kind"] != "climb" or stems[0] == known[0]:
        return KINDS[facts["kind"]].what
    return "beyond ten" if stems == known[10 : 10 + len(stems)] else "some scripts"


def belongs(facts: dict, rows: list[Row]) -> bool:
    """Whether README.md's results are of such climbs: from the baseline on, on a CPU or GPU."""
    begun = what_it_is(facts, rows) == KINDS["climb"].what and rows[0].logs
    return bool(begun) and device_kind(rows) != "mps"


def entry(facts: dict, rows: list[Row], shown: str, finding: str) -> str:
    """The entry of RUNLOG.md for one climb."""
    warmup, measured = (first_log(rows).result[f"{k}_steps"] for k in ("warmup", "measured"))
    clocks = {when: "; ".join(rates.split("\n")) for when, rates in facts["clocks"].items()}
    block = render(f"<!-- table {shown} -->\n<!-- end -->")
    return f"""
## {facts["started"][:10]}: {facts["device"]}: {what_it_is(facts, rows)}

{caption(facts, rows)}; {facts["system"]}, {facts["cores"]} cores, clocks before: \
{clocks.get("before")}, after: {clocks["after"]}; {facts["repeats"]} rounds, \
interleaved; {warmup} warm-up step{"s" * (warmup > 1)} left out of each run, {measured} measured.

**Finding:** {" ".join(finding.split())}

Raw logs: `{shown}`

{block}
"""


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    made = {"headline": headline, "rungs": rungs_table, "machines": lambda _: machines_table()}
    text = BLOCK.sub(block, text)
    return OVERVIEW.sub(
        lambda m: f"<!-- {m['kind']} -->\n{made[m['kind']](climbs_in(text))}<!-- end -->", text
    )


def block(match: re.Match) -> str:
    """The block of one climb: all columns, or for README.md a caption and a short table."""
    facts, rows = read_climb(ROOT / match["folder"])
    marker, shown = match[0].partition("\n")[0], None
    if match["kind"] == "results":
        rounds = f"{facts['repeats']} rounds ([raw logs]({match['folder']}))"
        marker, shown = f"{marker}\n{caption(facts, rows)}; {rounds}.\n", SHORT
    return f"{marker}\n{markdown(facts, rows, shown)}<!-- end -->"


def climbs_in(readme: str) -> list[tuple[str, list[Row]]]:
    """Folder and rows of each climb that the results of README.md name: a GPU's, then a CPU's."""
    found = [m for m in BLOCK.finditer(readme) if m["kind"] == "results"]
    folders = [name.strip() for m in found for name in m.group("folder", "other") if name]
    return [(folder, read_climb(ROOT / folder)[1]) for folder in folders]


def headline(climbs: list[tuple[str, list[Row]]]) -> str:
    """What rung 10 and the top one reach in each of these climbs; a picture of the first."""
    known, lines = [path.stem for path in all_scripts()], []
    for _, rows in climbs:
        rungs = {known.index(row.stem): row for row in rows if row.logs and row.stem in known}
        words = first_log(rows).run["device"] + ", a CPU" * (device_kind(rows) == "cpu")
        words += f": {rungs[0].tok_per_s:,.0f} tokens per second"
        for number in sorted({10, max(rungs)} & rungs.keys() - {0}):
            row = rungs[number]
            words += f"; up to rung {number}: {row.tok_per_s:,.0f}, {times(row, rungs[0]):.1f}×"
        if total := rungs[max(rungs)].total:
            words += f" (mean of {total.rounds} rounds)"
        lines.append(f"**{words}**")
    if "gpu" not in [device_kind(rows) for _, rows in climbs]:
        lines.append("A GPU has not been measured yet.")
    return "\\\n".join(lines) + f"\n\n![Tokens per second of each rung]({climbs[0][0]}/climb.png)\n"


def times(row: Row, first: Row) -> float:
    """How many times faster than the first: the mean over the rounds where there are several."""
    return row.total.ratio if row.total else row.tok_per_s / first.tok_per_s


def rungs_table(climbs: list[tuple[str, list[Row]]]) -> str:
    """Every rung with its one change and what that gains: in these climbs, CPUs first, and in
    docs/reported.json, which is not ours."""
    climbs = [rows for _, rows in reversed(climbs)]
    other = json.loads((ROOT / "docs" / "reported.json").read_text("utf-8"))
    link = f"({other['url']})"
    head = ["rung", "the one change", "lines changed"]
    head.append("[memory traffic](docs/limits.md), GB a step, *counted* for a GPU: B=16, T=1024")
    steps = work(16)
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
        step = steps.get(path.stem)
        line.append(f"{sum(step[f'{part}_bytes'] for part in PARTS) / 1e9:.0f}" if step else "")
        for rows in climbs:
            found = {row.stem: row for row in rows}
            row, over = found.get(path.stem), found.get(above.stem if above else "")
            line.append(short_gain(row, over) if row else "")
        ms = other["ms"].get(fields["Title"][:2])
        gain = f", {(before / ms - 1) * 100:+.0f} %" if before and ms else ""
        line.append(f"{ms} ms{gain}" if ms else "")
        before = ms or before
        lines.append(line)
    note = f"[{other['what']}]{link} by {other['who']}, {other['settings']}. {other['note']}"
    return f"{pipes(head, lines, left=2)}\n*Reported elsewhere*: {note}\n"


def short_gain(row: Row, over: Row | None) -> str:
    """The gain over the rung before it, whatever row is above it in its climb, and no interval."""
    if row.failure:
        return "failed"
    return percent(over and results.gain(over, row), row).partition(" (")[0]


def machines_table() -> str:
    """A row for each machine under logs/, the fastest first: its newest climb from the baseline to
    rung 10 or above, at the B and T that its device has by default."""
    known, newest = [path.stem for path in all_scripts()], {}
    climbs = [(read_facts(p.parent), p.parent) for p in (ROOT / "logs").glob("*/climb.json")]
    for facts, folder in sorted(climbs, key=lambda one: (one[0]["started"], one[1])):
        stems = [Path(name).stem for name in facts["scripts"]]
        if facts["kind"] == "climb" and known[10] in stems and stems[0] == known[0]:
            rows = read_climb(folder)[1]
            rungs = {row.stem: row for row in rows if row.logs and row.stem in known}
            if {known[0], known[10]} <= rungs.keys() and at_default_size(facts, rows):
                newest[first_log(rows).run["device"]] = facts, folder, rungs
    lines = []
    for facts, folder, rungs in newest.values():
        base, ten = rungs[known[0]], rungs[known[10]]
        number = max(map(known.index, rungs))
        top, run = rungs[known[number]], first_log([base]).run
        date = f"[{facts['started'][:10]}]({folder.relative_to(ROOT).as_posix()})"
        line = ["{device}, B={B}, T={T}".format(**run), run["torch"], f"{base.tok_per_s:.0f}"]
        line += [f"{ten.tok_per_s:.0f}", f"{top.tok_per_s:.0f} ({number})"]
        lines.append([*line, f"{times(top, base):.2f}×", date])
    head = ["machine", "torch", "tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    return pipes(head, sorted(lines, key=lambda line: -float(line[4].split()[0])), left=2)


def at_default_size(facts: dict, rows: list[Row]) -> bool:
    """Whether a climb left B and T at what its device has by default, a GPU by its memory."""
    run = first_log(rows).run
    known = device_kind(rows) == "gpu" or (run["B"], run["T"]) == ("4", "256")
    return known and not any(
        flag.startswith(("--batch-size", "--seq-len")) for flag in facts["flags"]
    )
