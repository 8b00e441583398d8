"""Carry an edit of one rung through all later rungs.

Edit rung N, do not commit yet, and run

  ladder forward 3     carries the edit of rung 03 into 04 and all later rungs
  ladder forward 0     carries the edit of baseline.py into every rung and candidate

Each later rung gets a three-way merge of rung N as last committed, rung N as it is now, and itself.
Every script keeps its own docstring; edits of docstrings are not carried. If a rung changed the
same lines as you, both versions stay in it between <<<<<<< and >>>>>>>, their places are printed,
and the exit status is 1. Commit before you edit the same lines again, or the new edit conflicts
with the one you carried before.
"""

import tempfile
from difflib import SequenceMatcher
from pathlib import Path

from ladder.commands.diff import parts_of, rung_number, shown
from ladder.commands.scripts import A_RUNG, UNREADABLE, chain, split_source
from ladder.errors import BadInput
from ladder.files import git, write_whole

# Begins a line that no script contains (it is the ASCII unit separator).
MARK = "\x1f"


def add_arguments(parser) -> None:
    parser.add_argument("rung", metavar="RUNG", help=f"the rung you edited: {A_RUNG}")


def run(args) -> int:
    """Merge, write the scripts that change, and print their names. Returns 1 after a conflict."""
    number = rung_number(args.rung)
    edited, *later = chain()[number:]
    if not later:
        raise BadInput(f"{shown(edited)} is the last rung: no later one can take its edit")
    committed = git("show", f"HEAD:./{shown(edited)}")
    if committed.returncode:
        why = f"git knows no committed {shown(edited)} to compare with: {committed.stderr}"
        raise BadInput(why)
    try:
        base = split_source(committed.stdout)[1]
    except UNREADABLE:
        why = "as committed is not valid Python: commit the mended one, then edit"
        raise BadInput(f"{shown(edited)} {why}") from None
    theirs = parts_of(edited)[1]
    if theirs == base:
        raise BadInput(f"{shown(edited)} has no uncommitted edit (outside its docstring)")
    # Merge all, then write all, then print: bad input or a closed pipe must not stop it half-way.
    sources, lines, troubled = {}, [], 0
    for path in later:
        docstring, ours = parts_of(path)
        code, conflicts = carry(base, ours, theirs)
        if code != ours:
            sources[path] = docstring + code
        troubles = trouble(path, docstring + code, conflicts)
        news = "changed" if path in sources else "has it already"
        lines += troubles or [f"{shown(path)} {news}"]
        troubled += bool(troubles)
    for path, source in sources.items():
        write_whole(path, source.encode())
    print(*lines, sep="\n")
    if troubled:
        print(
            f"{troubled} of {len(later)} scripts need a hand: there keep what that script needs of "
            "both versions, delete the markers, and look at it with ladder diff"
        )
    ddp = parts_of(chain()[0].with_name("ddp_run.py"))[1]
    if number <= 10 and carry(base, ddp, theirs) != (ddp, 0):
        print("ddp_run.py has this code too and was left alone: edit it by hand")
    return int(troubled > 0)


def carry(base: str, ours: str, theirs: str) -> tuple[str, int]:
    """merge_code, but a part of the edit that `ours` already has is not a conflict."""
    code, conflicts = merge_code(base, ours, theirs)
    without, collisions = merge_code(theirs, ours, base) if conflicts else (ours, 1)
    return (code, conflicts) if collisions else merge_code(base, without, theirs)


def merge_code(base: str, ours: str, theirs: str, *options: str) -> tuple[str, int]:
    """Apply the change from `base` to `theirs` to `ours`. `options` go to git merge-file.

    Returns the merged text, with conflicts between markers, and the number of conflicts. Raises
    BadInput if git is missing.
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
        raise BadInput(f"git merge-file failed: {done.stderr}")
    kept = [line for line in done.stdout.split("\n")[:-1] if not line.startswith(MARK)]
    return "\n".join(kept), done.returncode


def marked(base: list[str], side: list[str]) -> str:
    """`side` with a mark before and after each line that it kept from `base` or replaced.

    For git, two changes conflict if no unchanged line lies between them. The marks are such lines:
    one side may change or delete a line next to one that the other side changed or added. A
    rewritten block loses its inner marks, so a line that the other side added there conflicts.
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
    """One line for each place in a merged script that must be resolved by hand."""
    if conflicts:
        lines = enumerate(source.split("\n"), 1)
        numbers = [number for number, line in lines if line.startswith("<<<<<<< ")]
        return [f"{shown(path)}:{number} conflict, marked there" for number in numbers]
    try:
        compile(source, str(path), "exec")
    except SyntaxError as error:
        return [f"{shown(path)}:{error.lineno} merged, but not valid Python: {error.msg}"]
    return []
