"""Apply an edit of one rung to all later rungs.

Edit rung N, do not commit yet, and run

  ladder propagate 3     applies the edit of rung 03 to 04 and all later rungs
  ladder propagate 0     applies the edit of baseline.py to every rung and candidate

Each later script gets a three-way merge of rung N as last committed, rung N as it is now, and
itself; docstrings stay as they are. If a script changed the same words as you, both versions are
written there between <<<<<<< and >>>>>>>, and the command stops with status 1. Resolve it, then go
on from that script: ladder propagate 9. Commit before you edit the same lines again.
"""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from ladder.commands.diff import rung_number
from ladder.errors import BadInput
from ladder.files import git, write_atomic
from ladder.measure.scripts import A_RUNG, chain, parts_of, shown, split_source


def add_arguments(parser) -> None:
    parser.add_argument("rung", metavar="RUNG", help=f"the rung you edited: {A_RUNG}")


def run(args) -> int:
    """Merge and write script by script, and print their names. Returns 1 after a conflict."""
    number = rung_number(args.rung)
    edited, *later = chain()[number:]
    if not later:
        raise BadInput(f"{shown(edited)} is the last rung: no later one can take its edit")
    committed = git("show", f"HEAD:./{shown(edited)}")
    if committed.returncode:
        why = f"git knows no committed {shown(edited)} to compare with: {committed.stderr}"
        raise BadInput(why)
    base, theirs = split_source(committed.stdout)[1], parts_of(edited)[1]
    if theirs == base:
        raise BadInput(f"{shown(edited)} has no uncommitted edit (outside its docstring)")
    lines, conflicts = [], []  # printed at the end: a closed pipe must not stop it half-way
    for path in later:
        docstring, ours = parts_of(path)
        code = merge(base, ours, theirs)
        if code != ours:
            write_atomic(path, (docstring + code).encode())
        if conflicts := places(path, docstring + code):
            go_on = f", then go on from it: ladder propagate {path.stem}" * (path != later[-1])
            lines += [*conflicts, f"keep what it needs of both, delete the markers{go_on}"]
            break
        lines.append(f"{shown(path)} {'has it already' if code == ours else 'changed'}")
    ddp = parts_of(chain()[0].with_name("ddp_run.py"))[1]
    if number <= 10 and merge(base, ddp, theirs) != ddp:
        lines.append("ddp_run.py has this code too and was left alone: edit it by hand")
    print(*lines, sep="\n")
    return int(bool(conflicts))


def places(path: Path, source: str) -> list[str]:
    """A line for each place of a merged script that must be resolved by hand."""
    lines = enumerate(source.split("\n"), 1)
    if numbers := [number for number, line in lines if line.startswith("<<<<<<< ")]:
        return [f"{shown(path)}:{number} conflict, marked there" for number in numbers]
    try:
        compile(source, str(path), "exec")
    except SyntaxError as error:
        return [f"{shown(path)}:{error.lineno} merged, but not valid Python: {error.msg}"]
    return []


def merge(base: str, ours: str, theirs: str, all_words: bool = False) -> str:
    """Apply the change from `base` to `theirs` to `ours`; conflicts stand between markers.

    If both sides changed the same lines and one side kept their number (or `all_words`), the words
    in them are merged.
    """
    merged = []
    for sides in aligned(*(side.splitlines(keepends=True) for side in (base, ours, theirs))):
        old, mine, other = sides
        part = changed(*sides)
        if part is None and (all_words or len(old) in (len(mine), len(other))):
            words = (re.findall(r"\w+|\W", "".join(side)) for side in sides)
            parts = [changed(*word) for word in aligned(*words)]
            part = None if None in parts else [word for some in parts for word in some]
        if part is None:
            part = ["<<<<<<< this script\n", *mine, "=======\n", *other, ">>>>>>> the edit\n"]
        merged += part
    return "".join(merged)


def changed(old: list, mine: list, other: list) -> list | None:
    """The one that differs from `old`; None if both do, and from each other."""
    return other if mine in (old, other) else mine if other == old else None


def aligned(base: list, ours: list, theirs: list) -> Iterator[tuple[list, list, list]]:
    """Yields the parts of the three, lines or words, that stand for each other.

    Edits that overlap share a part, and so do insertions at one place. Changes of neighbours do
    not: git would call them a conflict.
    """
    found = [(*edit, n) for n, side in enumerate((ours, theirs)) for edit in edits(base, side)]
    end, left = 0, sorted(found)
    while left:
        yield (base[end : left[0][0]],) * 3
        (start, end, *_), group = left[0], []
        while left and (left[0][0] < end or left[0][:2] == (start, end)):
            group.append(left.pop(0))
            end = max(end, group[-1][1])
        old, *new = (base[start:end] for _ in range(3))
        for i, j, lines, n in reversed(group):
            new[n][i - start : j - start] = lines
        yield old, *new
    yield (base[end:],) * 3


def edits(base: list, side: list) -> Iterator[tuple[int, int, list]]:
    """Yields (start, end, lines): `side` has `lines` where `base` has base[start:end]."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, base, side, autojunk=False).get_opcodes():
        if tag == "replace" and i2 - i1 == j2 - j1:  # one for one
            yield from ((i, i + 1, [side[j1 + i - i1]]) for i in range(i1, i2))
        elif tag != "equal":
            yield i1, i2, side[j1:j2]
