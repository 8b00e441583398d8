"""Put a finished climb into the repository: of the 124M model, or of 100 steps and more.

    python -m dev.publish runs/climb-20261121-101500 "bf16 autocast is the step that counts"

The folder may be your own, or what somebody sent. The raw logs go into logs/, and an entry, folded
below the sentence, on top of RUNLOG.md, or of beyond/RUNLOG.md if the climb is long enough for the
loss. With --readme README.md shows what this climb measured, for its kind of device, but not if it
has another model or text. `python -m dev.regenerate` then makes the tables. The climb has to come
from a committed state, so that its logs name what was measured. To undo it, use git.
"""

import lzma
import re
import shutil
from dataclasses import replace
from pathlib import Path

from dev.climbs import USUAL, climbs_in, other_setting
from ladder.checkout import COMMITTED, ROOT, git, require_own
from ladder.cli import Parser
from ladder.commands.main import program
from ladder.disk import write_atomic
from ladder.errors import UsageError
from ladder.measure.effective import differences
from ladder.measure.folder import PACKED, Climb, is_ours, stem_of
from ladder.measure.losses import MIN_STEPS
from ladder.measure.rows import NOT_RUN, Results, read_climb
from ladder.measure.scripts import relative_name, rungs
from ladder.show.tables import caption

LARGE = 250_000  # bytes of logs that are compressed


def main(argv: list[str] | None = None):
    """Copy the logs, add the entry, name them in README.md. Raises UsageError, and changes nothing,
    if the climb may not be published."""
    parser = Parser(__doc__)
    parser.add_argument("climb", type=Path, help="its folder")
    parser.add_argument("finding", help="what it shows, in one sentence")
    parser.add_argument(
        "--readme",
        action="store_true",
        help="show it in README.md, for its kind of device (default: in a run log alone)",
    )
    args = parser.parse_args(argv)
    require_own(Path(__file__))
    results = read_climb(args.climb)
    climb = results.climb
    check(results, args.readme)
    target = new_target(climb)
    shown = target.relative_to(ROOT).as_posix()
    copy_climb(climb, target)
    is_for_the_loss = results.log.run["steps"] >= MIN_STEPS
    runlog = ROOT / ("beyond/RUNLOG.md" if is_for_the_loss else "RUNLOG.md")
    text = runlog.read_text("utf-8")
    newest = re.search(r"^## \d{4}-", text, re.MULTILINE).start()
    text = text[:newest] + entry(results, shown, args.finding) + text[newest:]
    write_atomic(runlog, text)
    if args.readme:
        readme = ROOT / "README.md"
        write_atomic(readme, with_climb(readme.read_text("utf-8"), shown, climb))
    print(f"published in {shown}: run python -m dev.regenerate, read `git diff`, then commit")


def check(results: Results, in_readme: bool):
    """Raise UsageError, saying why, if a climb may not be published."""
    climb, rows = results
    if not results.ran:
        raise UsageError(f"{climb.folder} is no climb to publish: all its runs failed")
    ran = [row.name for row in results.ran]
    run = results.log.run
    other = other_setting(run)
    late = [row.name for row in rows if row.status == NOT_RUN]
    otherwise = differences([log for row in rows for log in row.logs.values()])
    why = None
    if not climb.ended:
        why = f"it was stopped: ladder climb --resume {climb.folder}"
    elif climb.quick:
        why = "a quick climb is not published: climb without --quick"
    elif other and run["steps"] < MIN_STEPS:
        why = f"below {MIN_STEPS} steps only {USUAL} is published, not {other}"
    elif not COMMITTED.fullmatch(climb.commit):
        why = f"only committed code is published, not {climb.commit}"
    elif not in_history(climb.commit):
        why = f"its commit {climb.commit} is not in HEAD's history: no clone would have it"
    elif late:
        why = f"the time (--max-minutes) was over before {late} could run: climb with more"
    elif otherwise:
        why = f"a rung ran {otherwise}"
    elif in_readme and other:
        why = f"README.md shows the speed of {USUAL}, not of {other}"
    elif in_readme and ran[:11] != [path.stem for path in rungs()]:
        why = "README.md shows only climbs of rungs 0 to 10, in this order"
    if why:
        raise UsageError(f"{climb.folder}: {why}")


def require_history():
    """Raise UsageError where git has not all history: in a zip download, or a shallow clone."""
    if git("rev-parse", "--is-shallow-repository") == "true\n":
        raise UsageError("this clone lacks history: git fetch --unshallow")


def in_history(commit: str) -> bool:
    """Whether a commit, by its first digits, is in HEAD's history, and so in a clone of it."""
    return f"\n{commit}" in "\n" + git("rev-list", "HEAD")


def new_target(climb: Climb) -> Path:
    """A new folder in logs/: the day's second climb on a machine gets a `-2`."""
    device = re.sub(r"[^a-z0-9]+", "-", climb.device.lower()).strip("-")
    first = ROOT / "logs" / f"{climb.started[:10]}-{device}-{climb.kind}"
    target = first
    number = 1
    while target.exists():
        number += 1
        target = Path(f"{first}-{number}")
    return target


def copy_climb(climb: Climb, target: Path):
    """Write climb.json and all logs in one file; scripts that are in no commit become texts, which
    no search takes for the project's code."""
    target.mkdir(parents=True)
    name_of_text = climb.data and Path(climb.data).name  # not where it lies
    replace(climb, data=name_of_text, folder=target).save()
    text = ""
    for name, logs in climb.logs().items():
        for k, log in logs.items():
            text += f"{stem_of(name, k)}.log\n{log}"
    packed = text.encode()
    if len(packed) < LARGE:
        write_atomic(target / PACKED, packed)
    else:
        write_atomic(target / f"{PACKED}.xz", lzma.compress(packed))
    for path in climb.folder.glob("*.failed"):  # a line each: of batches that do not fit
        shutil.copy(path, target)
    for name in climb.scripts:
        if not is_ours(name) and climb.kind != "without":  # those can be made again
            shutil.copy(climb.folder / "code" / name, target / f"{name}.txt", follow_symlinks=False)


def with_climb(readme: str, shown: str, climb: Climb) -> str:
    """README.md's text with this climb replacing the CPU (or GPU) one; a GPU's comes first."""
    shown_for = {}
    for old in climbs_in("README.md", "measured"):
        shown_for[old.climb.device_type == "cpu"] = relative_name(old.climb.folder)
    shown_for[climb.device_type == "cpu"] = shown
    folders = " ".join(shown_for[is_cpu] for is_cpu in sorted(shown_for))
    return re.sub("<!-- measured .*? -->", f"<!-- measured {folders} -->", readme)


def entry(results: Results, shown: str, finding: str) -> str:
    """The entry of a run log for one climb, folded below what it found, with an empty table."""
    climb = results.climb
    heading = f"## {climb.started[:10]}: {climb.device}: {climb.comparison.what}"
    how = f"{caption(results)}; {results.rounds_begun} rounds."
    # What a log says is text: no marker of ours, no HTML.
    return f"""{heading.replace("<", "&lt;")}

<details><summary>{" ".join(finding.split())}</summary>

{how.replace("<", "&lt;")}

Raw logs: `{shown}`

<!-- table {shown} -->
<!-- end -->

</details>

"""


if __name__ == "__main__":
    raise SystemExit(program(main))
