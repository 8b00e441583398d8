"""Put a finished climb of the 124M model into the repository.

    ladder publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"
    ladder publish climb-20261121-101500.json.gz "…"     what `ladder share` packed elsewhere

The raw logs are copied to logs/, an entry with the sentence is put on top of RUNLOG.md, where the
machine gets its row. With --readme README.md's headline and gains are those of this climb, for its
kind of device. The climb has to come from a committed state, so that its logs name what was
measured. To undo it, use git.
"""

import itertools
import re
import shutil
import tempfile
from pathlib import Path

from ladder.commands.share import unpack
from ladder.errors import BadInput
from ladder.files import SCRIPTS, write_atomic
from ladder.measure.kinds import KINDS
from ladder.measure.rows import Row, first_log, read_climb_json
from ladder.measure.scripts import ROOT
from ladder.show.blocks import BLOCK, climbs_of, on_cpu, render, rungs_of
from ladder.show.publishable import kept, read_publishable
from ladder.show.tables import caption


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
        if read_climb_json(target).get("started") == facts["started"]:
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
