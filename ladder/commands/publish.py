"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, and the
table and picture in README.md for this kind of device are made anew. The climb has to come from a
committed state, so that its logs name what was measured.
"""

import itertools
import re
import shutil
from pathlib import Path

from ladder.commands.kinds import BEYOND, KINDS
from ladder.commands.results import Row, read_climb
from ladder.commands.scripts import ROOT, all_scripts, low_precision
from ladder.commands.tables import caption, markdown
from ladder.errors import BadInput

# README.md: one block for each kind of device and of climb. RUNLOG.md: one in each entry.
BLOCK = re.compile(r"<!-- (?P<kind>[\w-]+) (?P<folder>\S+) -->\n.*?<!-- end -->", flags=re.DOTALL)
# By what stands behind the device in a block's kind.
WHAT = {"": KINDS["climb"].what, "beyond": BEYOND, **{name: k.what for name, k in KINDS.items()}}


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
    if inexact := [path.stem for path in folder.glob("*.py") if low_precision(path)]:
        raise BadInput(f"{folder} has {inexact[0]}: low precision is in no table with exact ones")
    if facts["data"] or run["data"] != "tinyshakespeare":
        raise BadInput(f"{folder} was climbed on other text than tinyshakespeare")


def kind(facts: dict, rows: list[Row]) -> str:
    """Which block of README.md a climb is for: `cpu`, `cpu-ablate`, `-beyond`, `-peers`, or `gpu…`.

    Rungs above 10 have a table of their own, headed by rung 10.
    """
    log = next(log for row in rows for log in row.logs.values())
    device = "cpu" if log.run["device"].endswith("threads)") else "gpu"
    if facts["kind"] != "climb":
        return f"{device}-{facts['kind']}"
    return f"{device}-beyond" if rows[0].stem == all_scripts()[10].stem else device


def entry(facts: dict, rows: list[Row], shown: str, finding: str) -> str:
    """The entry of RUNLOG.md for one climb."""
    log = next(log for row in rows for log in row.logs.values())
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
    return BLOCK.sub(lambda match: block(match["kind"], match["folder"]), text)


def block(kind: str, folder: str) -> str:
    """One block: caption and picture in README.md, and the table everywhere."""
    head = f"<!-- {kind} {folder} -->\n"
    if folder == "none":
        device, _, what = kind.partition("-")
        device = {"gpu": "CUDA", "cpu": "CPU"}[device]
        return f"{head}**{device}: {WHAT[what]} is not measured yet.**\n<!-- end -->"
    facts, rows = read_climb(ROOT / folder)
    if kind != "table":
        head += f"{caption(facts, rows)}.\n\n"
        if (ROOT / folder / "climb.png").exists():
            head += f"![Tokens per second of each rung]({folder}/climb.png)\n\n"
    return f"{head}{markdown(facts, rows)}<!-- end -->"
