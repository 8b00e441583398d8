"""What a script says of itself: its docstring and the fields in it."""

import ast
import re
from pathlib import Path

from ladder.errors import UsageError
from ladder.measure.scripts import relative_name

FIELDS = ["Change", "Why", "Numerics", "Run"]  # of each docstring, in this order
# After them: what a rung removes from a step, and what the log's `effective` says from it on.
OPTIONAL = ["Removes", "Effective"]


def split_source(source: str) -> tuple[str, str]:
    """The docstring of a source text (quotes included; empty if none) and the code after it."""
    module = ast.parse(source)
    lines = source.splitlines(keepends=True)
    end = 0
    if ast.get_docstring(module) is not None:
        end = module.body[0].end_lineno
    return "".join(lines[:end]), "".join(lines[end:])


def parts_of(path: Path) -> tuple[str, str]:
    """split_source of a script. Raises UsageError if Python cannot parse it."""
    try:
        return split_source(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{relative_name(path)} is not valid Python: {error}") from None


def docstring(path: Path) -> str:
    """A script's docstring, empty if it has none. Raises UsageError if Python cannot parse it."""
    return ast.get_docstring(ast.parse(parts_of(path)[0])) or ""


def title(path: Path) -> str:
    """The first line of a script's docstring, up to a colon; without one, the file's name."""
    return re.split("[:\n]", docstring(path) or path.stem)[0]


def describe(path: Path) -> dict[str, str]:
    """The fields of a script's docstring, each on one line.

    Raises UsageError if one is missing.
    """
    fields = {}
    name = None
    for line in docstring(path).splitlines()[1:]:
        head, _, text = line.partition(":")
        if head in FIELDS or head in OPTIONAL:
            name = head
            fields[name] = text.strip()
        elif name:
            fields[name] = f"{fields[name]} {line.strip()}".strip()
    required = [name for name in fields if name in FIELDS]
    if required != FIELDS or not all(fields.values()):
        raise UsageError(f"{path}: its docstring has {list(fields)}, expected {FIELDS}")
    return fields
