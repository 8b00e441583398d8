"""Put a finished climb into the repository: of the 124M model, or of 100 steps and more.

    python dev/publish.py runs/climb-20261121-101500 "bf16 autocast is the step that counts"

The folder may be your own, or what somebody sent. The raw logs go into logs/, an entry is put on
top of RUNLOG.md, folded below the sentence, and the machine gets its row there. With --readme
README.md shows what this climb measured, for its kind of device. A climb of another model or text
is for the loss, and README.md does not show it. From 100 steps on, it may have been stopped after a
whole round: the entry says so. The climb has to come from a committed state, so that its logs name
what was measured. To undo it, use git.
"""

import itertools
import lzma
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from blocks import USUAL, measured_climbs, other_setting, render

from ladder.cli import Parser
from ladder.commands.main import program
from ladder.errors import UsageError
from ladder.files import COMMITTED, ROOT, SCRIPTS, require_own, write_atomic
from ladder.measure.climb import PACKED, Climb, climb_logs, pack_logs
from ladder.measure.effective import differences
from ladder.measure.losses import MIN_STEPS
from ladder.measure.rows import OUT_OF_TIME, Row, first_log, read_climb
from ladder.measure.scripts import rungs
from ladder.show.gather import found_in
from ladder.show.tables import caption

LARGE = 2**20  # bytes of logs that are compressed


def run(argv: list[str]):
    """Publish what the command line names."""
    parser = Parser(__doc__)
    parser.add_argument("climb", type=Path, help="its folder")
    parser.add_argument("finding", help="what it shows, in one sentence")
    shown = "show it in README.md, for its kind of device (default: in RUNLOG.md alone)"
    parser.add_argument("--readme", action="store_true", help=shown)
    args = parser.parse_args(argv)
    require_own(Path(__file__), "publish.py is in", "PYTHONPATH={}")
    publish(args.climb, args.finding, args.readme)


def publish(folder: Path, finding: str, in_readme: bool = False):
    """Copy the logs, add the entry, make the pages anew. Raises UsageError, and changes nothing, if
    the climb may not be published."""
    climb, rows = read_publishable(folder)
    target = new_target(climb)
    shown = target.relative_to(ROOT).as_posix()
    readme = (ROOT / "README.md").read_text("utf-8")
    runlog = (ROOT / "RUNLOG.md").read_text("utf-8")
    newest = re.search(r"^## \d{4}-", runlog, re.MULTILINE).start()
    if in_readme:
        readme = with_climb(readme, shown, climb, rows)
    copy_climb(folder, target, climb)
    runlog = runlog[:newest] + entry(climb, rows, shown, finding) + runlog[newest:]
    write_atomic(ROOT / "RUNLOG.md", render(runlog).encode())
    write_atomic(ROOT / "README.md", render(readme).encode())
    print(f"published in {shown}: read what `git diff` shows, then commit")


def read_publishable(folder: Path) -> tuple[Climb, list[Row]]:
    """The climb and the rows of a climb. Raises UsageError if it may not be published."""
    climb, rows = read_climb(folder)
    if not any(row.logs for row in rows):
        raise UsageError(f"{folder} is no climb to publish: all its runs failed")
    why = why_not(folder, climb, rows)
    if why:
        raise UsageError(f"{folder}: {why}")
    return climb, rows


def why_not(folder: Path, climb: Climb, rows: list[Row]) -> str | None:
    """Why a climb may not be published; None if it may."""
    run = first_log(rows).run
    for_the_loss = int(run["steps"]) >= MIN_STEPS
    if not climb.ended and not (for_the_loss and climb.rounds_begun > 1):
        return f"it was stopped: ladder climb --resume {folder}"
    if climb.quick:
        return "a quick climb is not published: climb without --quick"
    other = other_setting(run)
    if other and int(run["steps"]) < MIN_STEPS:
        return f"below {MIN_STEPS} steps only {USUAL} is published, not {other}"
    if int(run["steps"]) < 3:
        return "fewer than 3 steps are no measurement: two are warm-up"
    if not COMMITTED.fullmatch(climb.commit):
        return f"only committed code is published, not {climb.commit}"
    for row in rows:
        if row.status == OUT_OF_TIME:
            return f"the time (--max-minutes) was over before {row.name} could run: climb with more"
        for text in differences(row.logs.values()):
            return f"{row.name} ran {text}"
    for name in from_outside(climb):
        if Path(name).stem not in found_in(folder):
            return f"{name} is not in the folder: nobody could see what was measured"
    return None


def new_target(climb: Climb) -> Path:
    """A new folder in logs/: the day's second climb on a machine gets a `-2`."""
    device = re.sub(r"[^a-z0-9]+", "-", climb.device.lower()).strip("-")
    first = ROOT / "logs" / f"{climb.started[:10]}-{device}-{climb.kind}"
    target = first
    for number in itertools.count(2):
        if not target.exists():
            return target
        old = Climb.read_from(target)
        if (old.started, old.scripts) == (climb.started, climb.scripts):
            why = "has this climb already: to publish it again, delete that first"
            raise UsageError(f"{target.relative_to(ROOT).as_posix()} {why}")
        target = first.with_name(f"{first.name}-{number}")


def copy_climb(folder: Path, target: Path, climb: Climb):
    """Write climb.json and all logs in one file, and copy the scripts that are in no commit."""
    target.mkdir(parents=True)
    name_of_text = climb.data and Path(climb.data).name  # not where it lies
    replace(climb, data=name_of_text).write_to(target)
    texts = {f"{name}.r{k}": text for (name, k), text in climb_logs(folder, climb).items()}
    packed = pack_logs(texts).encode()
    if len(packed) < LARGE:
        write_atomic(target / PACKED, packed)
    else:
        write_atomic(target / f"{PACKED}.xz", lzma.compress(packed))
    for name in from_outside(climb):
        shutil.copy(found_in(folder)[Path(name).stem], target)


def from_outside(climb: Climb) -> list[str]:
    """The scripts of a climb that are in no commit, but for those that can be made again."""
    if climb.kind == "without":
        return []
    return [name for name in climb.scripts if "/" not in name and name not in SCRIPTS]


def with_climb(readme: str, shown: str, climb: Climb, rows: list[Row]) -> str:
    """README.md's text with this climb replacing the CPU (or GPU) one."""
    other = other_setting(first_log(rows).run)
    if other:
        raise UsageError(f"README.md shows the speed of gpt2 on tinyshakespeare, not of {other}")
    ran = [row.name for row in rows if row.logs]
    if ran[:11] != [path.stem for path in rungs()]:
        raise UsageError("README.md shows only climbs in which rungs 0 to 10 ran, in this order")
    named = {old.device_type == "cpu": folder for folder, old, _ in measured_climbs()}
    named[climb.device_type == "cpu"] = shown
    folders = " ".join(named[key] for key in sorted(named))  # a GPU's first
    return re.sub("<!-- measured .*? -->", f"<!-- measured {folders} -->", readme)


def entry(climb: Climb, rows: list[Row], shown: str, finding: str) -> str:
    """The entry of RUNLOG.md for one climb, folded below what it found."""
    what = climb.comparison.what
    if climb.kind == "climb" and rows[0].name != "baseline":
        what = "some scripts"
    log = first_log(rows)
    block = render(f"<!-- table {shown} -->\n<!-- end -->")
    # What a log says is text: no marker of ours, no HTML.
    heading = f"## {climb.started[:10]}: {climb.device}: {what}".replace("<", "&lt;")
    rounds = f"{climb.rounds_begun} round{'s' if climb.rounds_begun > 1 else ''}"
    if not climb.ended:
        rounds = f"stopped in or after round {climb.rounds_begun} of {climb.rounds}"
    how = f"""{caption(climb, rows)}; {climb.system}, {climb.cores} cores; {rounds}, \
interleaved; {log.warmup_steps} warm-up steps left out of each run, \
{log.measured_steps} measured.""".replace("<", "&lt;")
    return f"""{heading}

<details><summary>{" ".join(finding.split())}</summary>

{how}

Raw logs: `{shown}`

{block}

</details>

"""


if __name__ == "__main__":
    raise SystemExit(program(run, sys.argv[1:]))
