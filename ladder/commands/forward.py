"""Carry an edit of one rung through all later rungs.

Change something in rung N that all rungs above it should have too, do not commit yet, and run

  ladder forward 3     the edit of rung 03, into 04 and all after it
  ladder forward 0     the edit of baseline.py, into every rung (and every candidate)

Each later rung is merged three ways: with rung N as last committed, and as it is now. Every script
keeps its own docstring, and an edit of a docstring is not carried. Where a rung has changed the
very lines you edited, both versions are left in it between <<<<<<< and >>>>>>>, named on screen,
and the exit status is 1. Committing before the next edit of the same lines avoids that they clash
with what you carried before.
"""

import tempfile
from difflib import SequenceMatcher
from pathlib import Path

from ladder.commands.diff import parts_of, rung_number, shown
from ladder.commands.scripts import chain, split_source
from ladder.errors import BadInput
from ladder.files import git

# Begins a line that no script contains (it is the ASCII unit separator).
MARK = "\x1f"


def add_arguments(parser) -> None:
    parser.add_argument("rung", metavar="RUNG", help="the rung you edited: its number or path")


def run(args) -> int:
    """Merge, write the scripts that change, and name them. Returns 1 if any needs a hand."""
    number = rung_number(args.rung)
    edited, *later = chain()[number:]
    if not later:
        raise BadInput(f"{shown(edited)} is the last rung: there is nothing to carry its edit to")
    committed = git("show", f"HEAD:./{shown(edited)}")
    if committed.returncode:
        why = committed.stderr.strip()
        raise BadInput(f"git knows no committed {shown(edited)} to compare with: {why}")
    base, theirs = split_source(committed.stdout)[1], parts_of(edited)[1]
    if theirs == base:
        raise BadInput(f"{shown(edited)} has no uncommitted edit (outside its docstring)")
    # All are read and merged before one is written: bad input must not stop half-way.
    parts = [parts_of(path) for path in later]
    merged = [(docstring, *carry(base, ours, theirs)) for docstring, ours in parts]
    troubled = 0
    for path, (docstring, code, conflicts) in zip(later, merged, strict=True):
        source = docstring + code
        changed = source != path.read_text(encoding="utf-8")
        if changed:
            path.write_text(source, encoding="utf-8")
        troubles = trouble(path, source, conflicts)
        news = "changed" if changed else "has it already"
        print(*(troubles or [f"{shown(path)} {news}"]), sep="\n")
        troubled += bool(troubles)
    if troubled:
        print(f"{troubled} of {len(later)} scripts need a hand")
    return int(troubled > 0)


def carry(base: str, ours: str, theirs: str) -> tuple[str, int]:
    """merge_code, but what `ours` has already of the same edit does not collide with it."""
    code, conflicts = merge_code(base, ours, theirs)
    without, collisions = merge_code(theirs, ours, base) if conflicts else (ours, 1)
    return (code, conflicts) if collisions else merge_code(base, without, theirs)


def merge_code(base: str, ours: str, theirs: str, *options: str) -> tuple[str, int]:
    """Make the change from `base` to `theirs` in `ours` too. `options` are git merge-file's.

    Returns the merged text and the number of conflicts, each of them left in the text between
    markers. Raises BadInput without git.
    """
    lines = base.split("\n")
    texts = (marked(lines, side.split("\n")) for side in (ours, base, theirs))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("ours", "base", "theirs")]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
        labels = [word for name in ("this script", "base", "the edit") for word in ("-L", name)]
        done = git("merge-file", "-p", *options, *labels, *map(str, files))
    if done.returncode > 127:  # up to there it is the number of conflicts
        raise BadInput(f"git merge-file failed: {done.stderr.strip()}")
    kept = [line for line in done.stdout.split("\n")[:-1] if not line.startswith(MARK)]
    return "\n".join(kept), done.returncode


def marked(base: list[str], side: list[str]) -> str:
    """`side` with a mark before and after each line that it has from `base`, or has in its stead.

    To git, two changes collide when no unchanged line lies between them. The marks lie there: a
    line may change, or go, beside one that the other side changed or put in. Marks inside a block
    that was rewritten go with it, so a line that the other side put in there does collide.
    """
    lines = []
    for _, i1, i2, j1, j2 in SequenceMatcher(None, base, side, autojunk=False).get_opcodes():
        if i2 - i1 == j2 - j1:  # the same lines, or others one for one
            for i, line in zip(range(i1, i2), side[j1:j2], strict=True):
                lines += [f"{MARK}before {i}", line, f"{MARK}after {i}"]
        elif i1 == i2:
            lines += side[j1:j2]
        else:
            lines += [f"{MARK}before {i1}", *side[j1:j2], f"{MARK}after {i2 - 1}"]
    return "\n".join(lines) + "\n"


def trouble(path: Path, source: str, conflicts: int) -> list[str]:
    """A line for each place where a merged script needs a hand."""
    if conflicts:
        lines = enumerate(source.splitlines(), 1)
        numbers = [number for number, line in lines if line.startswith("<<<<<<< ")]
        return [f"{shown(path)}:{number} conflict, marked there" for number in numbers]
    try:
        compile(source, str(path), "exec")
    except SyntaxError as error:
        return [f"{shown(path)}:{error.lineno} merged, but no valid Python: {error.msg}"]
    return []
