"""The top script with one optimisation taken back."""

import ast
from pathlib import Path

from ladder.measure.merge import merge


def without(before: Path, rung: Path, top: Path) -> str | None:
    """The top script without the change from `before` to `rung`; None if a later rung changed it.

    What later rungs do with a variable of this one goes too: 08 unscales by 03's scaler.
    """
    old, new = before.read_text("utf-8"), rung.read_text("utf-8")
    variables = assigned(new) - assigned(old)
    lines = new.splitlines()
    kept = ""
    for line in top.read_text("utf-8").splitlines(keepends=True):
        uses = line.lstrip().partition(".")[0] in variables
        if line.rstrip() in lines or not uses:
            kept += line
    # The change backwards, from the rung to the script before it, applied to the top.
    source = merge(new, kept, old, always_words=True)
    try:
        compile(source, rung.stem, "exec")
    except SyntaxError:  # also of a conflict's markers
        return None
    return source


def assigned(code: str) -> set[str]:
    """The variables that a script sets."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
