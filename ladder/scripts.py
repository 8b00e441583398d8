"""The scripts of the ladder: where they are and what their docstrings say. No torch needed."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIELDS = ("Change", "Why", "Numerics", "Run")


def all_scripts() -> list[Path]:
    """baseline.py and every numbered rung, in order."""
    return [ROOT / "baseline.py", *sorted((ROOT / "speedups").glob("[0-9][0-9]_*.py"))]


def describe(path: Path) -> dict[str, str]:
    """`Title` and the fixed fields of a script's docstring, each on one line.

    Raises ValueError where one is missing: tables are made from them.
    """
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    title, _, body = doc.partition("\n")
    parts = re.split(rf"^({'|'.join(FIELDS)}):", body, flags=re.MULTILINE)
    texts = (" ".join(text.split()) for text in parts[2::2])
    found = dict(zip(parts[1::2], texts, strict=True))
    if tuple(found) != FIELDS or not all(found.values()):
        raise ValueError(f"{path}: its docstring has {list(found)}, expected {list(FIELDS)}")
    return {"Title": title, **found}


def code_lines(path: Path) -> list[str]:
    """The lines of a script with its docstring and its blank lines left out."""
    source = path.read_text()
    end = ast.parse(source).body[0].end_lineno
    return [line for line in source.splitlines()[end:] if line.strip()]
