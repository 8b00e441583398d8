"""The difference between two scripts."""

from difflib import unified_diff
from pathlib import Path

from ladder.measure.notes import code_of
from ladder.measure.scripts import relative_name


def diff_lines(before: Path, after: Path) -> list[str]:
    """A unified diff of two scripts, as `diff -u` prints it."""
    old, new = before.read_text("utf-8").splitlines(), after.read_text("utf-8").splitlines()
    names = relative_name(before), relative_name(after)
    return [*unified_diff(old, new, *names, lineterm="")]


def code_diff(before: Path, after: Path) -> list[str]:
    """Like `diff_lines`, but without docstrings, file names and line numbers.

    A docstring of an old commit is an essay of its own. Raises UsageError if one is not Python.
    """
    old, new = code_of(before).splitlines(), code_of(after).splitlines()
    lines = [*unified_diff(old, new, lineterm="")][2:]
    return ["…" if line.startswith("@@") else line for line in lines]
