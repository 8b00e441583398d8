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
from ladder.measure.kinds import kind_of
from ladder.measure.rows import Row, first_log, read_climb_json
from ladder.measure.scripts import ROOT, all_scripts
from ladder.show.blocks import climbs_of, is_cpu, render, rungs_marker
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
        folder = args.climb
        if folder.is_file():
            folder = unpack(args.climb, Path(scratch))
        publish(folder, args.finding, args.readme)
    return 0


def publish(folder: Path, finding: str, in_readme: bool = False):
    """Copy the logs, add the entry, make the pages anew. Raises BadInput, and changes nothing, if
    the climb may not be published."""
    climb, rows = read_publishable(folder)
    target = new_target(climb)
    shown = target.relative_to(ROOT).as_posix()
    readme = (ROOT / "README.md").read_text("utf-8")
    runlog = (ROOT / "RUNLOG.md").read_text("utf-8")
    if in_readme:
        readme = with_climb(readme, shown, climb, rows)
    copy_climb(folder, target, climb)
    above, heading, entries = runlog.partition("\n## 2")  # the newest entry, by its date
    runlog = above + entry(climb, rows, shown, finding) + heading + entries
    write_atomic(ROOT / "RUNLOG.md", render(runlog).encode())
    write_atomic(ROOT / "README.md", render(readme).encode())
    print(f"published in {shown}: read what `git diff` shows, then commit")


def new_target(climb: dict) -> Path:
    """A new folder in logs/: the day's second climb on a machine gets a `-2`."""
    device = re.sub(r"[^a-z0-9]+", "-", climb["device"].lower()).strip("-")
    first = ROOT / "logs" / f"{climb['started'][:10]}-{device}-{climb['kind']}"
    target = first
    for number in itertools.count(2):
        if not target.exists():
            return target
        if read_climb_json(target).get("started") == climb["started"]:
            why = "has this climb already: to publish it again, delete that first"
            raise BadInput(f"{target.relative_to(ROOT).as_posix()} {why}")
        target = first.with_name(f"{first.name}-{number}")


def copy_climb(folder: Path, target: Path, climb: dict):
    """Copy climb.json, the logs and the scripts that are in no commit."""
    target.mkdir(parents=True)
    paths = [folder / "climb.json", *folder.glob("*.r*.log")]
    for name in climb["scripts"]:
        if "/" not in name and name not in SCRIPTS:
            paths.append(kept(folder, name))
    for path in paths:
        shutil.copy(path, target)


def with_climb(readme: str, shown: str, climb: dict, rows: list[Row]) -> str:
    """README.md's text with this climb replacing the CPU (or GPU) one."""
    ran = [row.stem for row in rows if row.logs]
    if ran[:11] != [path.stem for path in all_scripts()[:11]]:
        raise BadInput("README.md shows only climbs in which rungs 0 to 10 ran, in this order")
    named = {is_cpu(old["device"]): folder for folder, old, _ in climbs_of(rungs_marker(readme))}
    named[is_cpu(climb["device"])] = shown
    folders = " ".join(named[key] for key in sorted(named))  # a GPU's first
    return re.sub("<!-- (headline|rungs) .*? -->", rf"<!-- \1 {folders} -->", readme)


def entry(climb: dict, rows: list[Row], shown: str, finding: str) -> str:
    """The entry of RUNLOG.md for one climb."""
    what = kind_of(climb).what
    if climb["kind"] == "climb" and rows[0].stem != "baseline":
        what = "some scripts"
    result = first_log(rows).result
    block = render(f"<!-- table {shown} -->\n<!-- end -->")
    return f"""
## {climb["started"][:10]}: {climb["device"]}: {what}

{caption(climb, rows)}; {climb["system"]}, {climb.get("cores")} cores; {climb["repeats"]} rounds, \
interleaved; {result["warmup_steps"]} warm-up steps left out of each run, \
{result["measured_steps"]} measured.

**Finding:** {" ".join(finding.split())}

Raw logs: `{shown}`

{block}
"""
