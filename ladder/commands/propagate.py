"""Apply an edit of one rung to all rungs and candidates that go on from it.

Edit rung N, do not commit yet, and run

  ladder propagate 3     applies the edit of rung 03 to 04 and all later rungs
  ladder propagate 0     applies the edit of baseline.py to every rung and candidate
  ladder propagate 11    to 12 alone: the candidates go on from rung 10

Each later script gets a three-way merge of rung N as last committed, rung N as it is now, and
itself; docstrings stay as they are. If a script changed the same words as you, both versions are
written there between <<<<<<< and >>>>>>>, those that go on from it wait, and the status is 1.
Resolve it, then go on from that script: ladder propagate 9. Commit before you edit the same lines
again.
"""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from ladder.commands.diff import A_RUNG, ladder_script
from ladder.errors import BadInput
from ladder.files import git, write_atomic
from ladder.measure.scripts import before, chain, shown
from ladder.show.docstrings import parts_of, split_source


def add_arguments(parser):
    parser.add_argument("rung", metavar="RUNG", help=f"the rung you edited: {A_RUNG}")


def run(args) -> int:
    """Merge and write script by script, and print their names. Returns 1 after a conflict."""
    edited = ladder_script(args.rung)
    later = followers(edited)
    if not later:
        raise BadInput(f"{shown(edited)} is the last rung: no other goes on from it")
    base, theirs = committed_code(edited), parts_of(edited)[1]
    if theirs == base:
        raise BadInput(f"{shown(edited)} has no uncommitted edit (outside its docstring)")
    lines = []  # printed at the end: a closed pipe must not stop it half-way
    waiting = []
    status = 0
    for path in later:
        if path in waiting:
            continue
        docstring, ours = parts_of(path)
        code = merge(base, ours, theirs)
        if code != ours:
            write_atomic(path, (docstring + code).encode())
        conflicts = places(path, docstring + code)
        if conflicts:
            status = 1
            waiting += followers(path)
            how = "keep what it needs of both, delete the markers, and go on from it:"
            lines += [*conflicts, how, f"ladder propagate {path.stem}"]
        elif code == ours:
            lines.append(f"{shown(path)} has it already")
        else:
            lines.append(f"{shown(path)} changed")
    print(*lines, sep="\n")
    return status


def followers(path: Path) -> list[Path]:
    """All scripts that go on from `path`, directly or not, in order."""
    reached = [path]
    for script in chain():
        if before(script) in reached:
            reached.append(script)
    return reached[1:]


def committed_code(path: Path) -> str:
    """The code of a script as last committed, without its docstring. Raises BadInput."""
    committed = git("show", f"HEAD:./{shown(path)}")
    if committed.returncode:
        why = f"git knows no committed {shown(path)} to compare with: {committed.stderr}"
        raise BadInput(why)
    return split_source(committed.stdout)[1]


def places(path: Path, source: str) -> list[str]:
    """A line for each place of a merged script that must be resolved by hand."""
    conflicts = []
    for number, line in enumerate(source.split("\n"), 1):
        if line.startswith("<<<<<<< "):
            conflicts.append(f"{shown(path)}:{number} conflict, marked there")
    if conflicts:
        return conflicts
    try:
        compile(source, str(path), "exec")
    except SyntaxError as error:
        return [f"{shown(path)}:{error.lineno} merged, but not valid Python: {error.msg}"]
    return []


def merge(base: str, ours: str, theirs: str, always_words: bool = False) -> str:
    """Apply the change from `base` to `theirs` to `ours`; conflicts stand between markers.

    If both sides changed the same lines and one side kept their number (or `always_words`), the
    words in them are merged.
    """
    merged = []
    lines = [side.splitlines(keepends=True) for side in (base, ours, theirs)]
    for old, mine, other in aligned(*lines):
        part = changed(old, mine, other)
        same_number = len(old) in (len(mine), len(other))
        if part is None and (same_number or always_words):
            part = merge_words(old, mine, other)
        if part is None:
            part = ["<<<<<<< this script\n", *mine, "=======\n", *other, ">>>>>>> the edit\n"]
        merged += part
    return "".join(merged)


def merge_words(*sides: list[str]) -> list[str] | None:
    """The merge of the words in three lists of lines; None if both sides changed the same word."""
    merged = []
    words = [re.findall(r"\w+|\W", "".join(side)) for side in sides]
    for old, mine, other in aligned(*words):
        part = changed(old, mine, other)
        if part is None:
            return None
        merged += part
    return merged


def changed(old: list, mine: list, other: list) -> list | None:
    """The one that differs from `old`; None if both do, and from each other."""
    if mine in (old, other):
        return other
    if other == old:
        return mine
    return None


def aligned(base: list, ours: list, theirs: list) -> Iterator[tuple[list, list, list]]:
    """Yield the parts of the three, lines or words, that stand for each other.

    Edits that overlap share a part, and so do insertions at one place. Changes of neighbours do
    not: git would call them a conflict.
    """
    both = []
    for side, lines in enumerate((ours, theirs)):
        both += [(start, end, side, new) for start, end, new in edits(base, lines)]
    both.sort()

    groups = []  # of edits that overlap
    stop = -1
    for edit in both:
        start, end, *_ = edit
        if groups and (start < stop or (start, end) == groups[-1][0][:2]):
            groups[-1].append(edit)
        else:
            groups.append([edit])
        stop = max(stop, end)

    position = 0
    for group in groups:
        first = group[0][0]
        unchanged = base[position:first]
        yield unchanged, unchanged, unchanged
        position = max(end for _, end, _, _ in group)
        old = base[first:position]
        new = [old.copy(), old.copy()]
        for start, end, side, lines in reversed(group):
            new[side][start - first : end - first] = lines
        yield old, *new
    rest = base[position:]
    yield rest, rest, rest


def edits(base: list, side: list) -> Iterator[tuple[int, int, list]]:
    """Yield (start, end, lines): `side` has `lines` where `base` has base[start:end]."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, base, side, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if i2 - i1 == j2 - j1:  # one for one
            for i in range(i1, i2):
                j = j1 + i - i1
                yield i, i + 1, [side[j]]
        else:
            yield i1, i2, side[j1:j2]
