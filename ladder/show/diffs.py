"""The difference between two scripts, docstrings left out."""

import re
from difflib import unified_diff
from pathlib import Path

from ladder.measure.docstrings import parts_of
from ladder.measure.scripts import relative_name


def diff_lines(before: Path, after: Path) -> list[str]:
    """A unified diff of the code of two scripts, with the line numbers of the whole files."""
    old_docstring, old_code = parts_of(before)
    new_docstring, new_code = parts_of(after)
    old_start = old_docstring.count("\n")
    new_start = new_docstring.count("\n")

    def in_whole_file(hunk: re.Match) -> str:
        old = int(hunk[1]) + old_start
        new = int(hunk[3]) + new_start
        return f"@@ -{old}{hunk[2]} +{new}{hunk[4]} @@"

    names = relative_name(before), relative_name(after)
    diff = unified_diff(old_code.splitlines(), new_code.splitlines(), *names, lineterm="")
    return [re.sub(r"^@@ -(\d+)(.*) \+(\d+)(.*) @@", in_whole_file, line) for line in diff]
