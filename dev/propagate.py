"""Apply an edit of one rung to all scripts that go on from it.

Edit rung N, do not commit yet, and run

  python -m dev.propagate 3     applies the edit of rung 03 to 04 and all later rungs
  python -m dev.propagate 0     applies the edit of baseline.py to every rung
  python -m dev.propagate 11    to 12 alone: 21 and 31 go on from rung 10
  python -m dev.propagate 10    to the branches, and to ddp_run.py, train.py and fsdp_run.py

Each later script gets a three-way merge of rung N as last committed, rung N as it is now, and
itself. If a script changed the same words as you, both versions are
written there between <<<<<<< and >>>>>>>, those that go on from it wait, and the status is 1.
Resolve it, then go on from that script: python -m dev.propagate 9. Commit before you edit the same
lines again.
"""

from pathlib import Path

from ladder.checkout import git, require_own
from ladder.cli import Parser
from ladder.commands.main import program
from ladder.disk import write_atomic
from ladder.errors import UsageError
from ladder.measure.merge import merge
from ladder.measure.scripts import (
    A_RUNG,
    ON_SEVERAL_GPUS,
    all_scripts,
    base_of,
    one_script,
    relative_name,
)


def main() -> int:
    """Merge and write script by script, and print their names. Returns 1 after a conflict."""
    parser = Parser(__doc__)
    parser.add_argument("rung", metavar="RUNG", help=f"the rung you edited: {A_RUNG}")
    args = parser.parse_args()
    require_own(Path(__file__))
    edited = one_script(args.rung)
    later = followers(edited)
    if not later:
        raise UsageError(f"no rung goes on from {relative_name(edited)}")
    base, theirs = committed(edited), edited.read_text("utf-8")
    if theirs == base:
        raise UsageError(f"{relative_name(edited)} has no uncommitted edit")
    lines = []  # printed at the end: a closed pipe must not stop it half-way
    waiting = []
    for path in later:
        if path in waiting:
            continue
        ours = path.read_text("utf-8")
        merged = merge(base, ours, theirs)
        if merged == ours:
            lines.append(f"{relative_name(path)} has it already")
            continue
        write_atomic(path, merged)
        lines.append(f"{relative_name(path)} changed")
        if "\n<<<<<<< " in merged:
            waiting += [path, *followers(path)]
            lines.append("with a conflict: keep what it needs of both, delete the markers, and")
            lines.append(f"python -m dev.propagate {path.stem}")
    print(*lines, sep="\n")
    return int(bool(waiting))


def followers(path: Path) -> list[Path]:
    """All scripts that go on from `path`, directly or not, in order."""
    reached = [path]
    for script in [*all_scripts(), *ON_SEVERAL_GPUS]:
        if base_of(script) in reached:
            reached.append(script)
    return reached[1:]


def committed(path: Path) -> str:
    """A script as last committed. Raises UsageError."""
    shown = git("show", f"HEAD:./{relative_name(path)}")
    if shown.returncode:
        why = f"git knows no committed {relative_name(path)} to compare with: {shown.stderr}"
        raise UsageError(why)
    return shown.stdout


if __name__ == "__main__":
    raise SystemExit(program(main))
