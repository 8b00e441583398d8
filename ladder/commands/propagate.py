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
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

from ladder.commands.diff import parts_of, rung_number, shown
from ladder.commands.scripts import A_RUNG, chain, split_source
from ladder.errors import BadInput
from ladder.files import git, write_atomic

# No script contains these: the first begins a line that is only there while git merges, the second
# stands for a newline while words are merged line by line.
MARK, NEWLINE = "\x1f", "\x1e"
CONFLICT = re.compile(
    r"(<<<<<<< this script\n(?P<ours>.*?))\|{7} base\n(?P<base>.*?)"
    r"(=======\n(?P<theirs>.*?)>>>>>>> the edit\n)",
    flags=re.DOTALL,
)


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
    in them are merged. Raises BadInput if git is missing.
    """

    def merge_words(conflict: re.Match) -> str:
        sides = [conflict[side] for side in ("base", "ours", "theirs")]
        base, *others = (side.count("\n") for side in sides)
        if all_words or base in others:
            words = (re.findall(r"\w+|\W", side.replace("\n", NEWLINE)) for side in sides)
            merged = merge_lines(*("\n".join(side) for side in words))
            if not CONFLICT.search(merged + "\n"):
                return merged.replace("\n", "").replace(NEWLINE, "\n")
        return conflict[1] + conflict[4]  # without the base

    return CONFLICT.sub(merge_words, merge_lines(base, ours, theirs))


def merge_lines(base: str, ours: str, theirs: str) -> str:
    """git merge-file, but changes in neighbouring lines are no conflict. Conflicts show the base.

    Raises BadInput if git is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("this script", "base", "the edit")]
        for file, side in zip(files, (ours, base, theirs), strict=True):
            file.write_text(marked(base.split("\n"), side.split("\n")), encoding="utf-8")
        labels = [word for file in files for word in ("-L", file.name)]
        done = git("merge-file", "-p", "--diff3", *labels, *map(str, files))
    if done.returncode > 127:  # up to there it is the number of conflicts
        raise BadInput(f"git merge-file failed: {done.stderr}")
    return "\n".join(x for x in done.stdout.split("\n")[:-1] if not x.startswith(MARK))


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
