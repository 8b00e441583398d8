"""The difference between two scripts, docstrings left out."""

import re
from difflib import unified_diff
from pathlib import Path

from ladder.measure.scripts import parts_of, shown


def diff_lines(before: Path, after: Path) -> list[str]:
    """A unified diff of the code of two scripts, with the line numbers of the whole files."""
    parts = [parts_of(path) for path in (before, after)]
    above = [docstring.count("\n") for docstring, _ in parts]
    sides = [code.removesuffix("\n").split("\n") for _, code in parts]
    lines = list(unified_diff(*sides, shown(before), shown(after), lineterm=""))
    for at, line in enumerate(lines):
        if hunk := re.match(r"@@ -(\d+)(.*) \+(\d+)(.*) @@", line):
            a, b = int(hunk[1]) + above[0], int(hunk[3]) + above[1]
            lines[at] = f"@@ -{a}{hunk[2]} +{b}{hunk[4]} @@"
    return lines


def code_lines(path: Path) -> list[str]:
    """The lines of a script with its docstring and its blank lines left out."""
    return [line for line in parts_of(path)[1].split("\n") if line.strip()]


def changed_lines(before: list[str], after: list[str]) -> list[str]:
    """The + and - lines between the code_lines of two scripts: how large a change is."""
    lines = list(unified_diff(before, after, n=0, lineterm=""))[2:]
    return [line for line in lines if not line.startswith("@@")]
