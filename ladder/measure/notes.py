"""What is said of a script: its docstring, which lists what it has, and its note on a page.

The notes of a folder's rungs are in its README.md, under headings such as
`## [05 torch.compile](05_torch_compile.py)`; those of the scripts beside baseline.py, and its own,
are in speedups/README.md.
"""

import ast
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from ladder.checkout import ROOT
from ladder.errors import UsageError
from ladder.measure.scripts import all_scripts, ours, relative_name, transformers_scripts

# Of each note, in this order. The first has no name on the page.
FIELDS = ["Change", "Why", "Numerics"]
# After them: what a rung removes from a step, and what the log's `effective` says from it on.
OPTIONAL = ["Removes", "Effective"]
HEADING = re.compile(r"^## \[.*\]\((.*)\)\n", re.MULTILINE)  # of a note, with its script
FIELD = re.compile(r"\*\*(\w+)\.\*\* ")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def code_of(path: Path) -> str:
    """A script without its docstring. Raises UsageError if Python cannot parse it."""
    source = path.read_text("utf-8")
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{relative_name(path)} is not valid Python: {error}") from None
    if ast.get_docstring(module) is None:
        return source
    lines = source.splitlines(keepends=True)
    return "".join(lines[module.body[0].end_lineno :])


def docstring(path: Path) -> str:
    """A script's docstring, empty if it has none or is not Python."""
    with suppress(SyntaxError, ValueError):
        return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return ""


def title(path: Path) -> str:
    """The name of what a script adds, such as `05 torch.compile`: in its docstring the last item of
    the list. Without a list, what stands before the first colon; without a docstring, the file's
    name."""
    text = docstring(path) or path.stem
    first, _, listed = text.partition("\n\n")
    line = first.partition("\n")[0]
    if line.endswith("trained with:"):
        *_, line = listed.partition("\n\n")[0].splitlines()
    return line.partition(":")[0]


@cache
def titles() -> dict[str, str]:
    """The title of every rung, of the top rung without it, and of transformers', by file's stem."""
    found = {}
    for path in [*all_scripts(), *transformers_scripts()]:
        found[path.stem] = title(path)
        found[f"without_{path.stem}"] = f"without {title(path)}"
    return found


def title_of(stem: str) -> str:
    """The title of the script with this stem; of one from outside its stem."""
    return titles().get(stem, stem)


@cache
def sections() -> dict[str, str]:
    """All notes as they stand on their pages, without headings, by the stem of their script."""
    found = {}
    for page in sorted({page_of(path) for path in ours()}):
        text = page.read_text("utf-8") if page.is_file() else ""
        _, *parts = HEADING.split(text)
        for script, body in zip(parts[::2], parts[1::2], strict=True):
            found[Path(script).stem] = body.partition("\n## ")[0].strip()
    return found


def page_of(path: Path) -> Path:
    """The page that has the note of a script."""
    folder = ROOT / "speedups" if path.parent == ROOT else path.parent
    return folder / "README.md"


def describe(path: Path) -> dict[str, str]:
    """The fields of a script's note, each in one line of words; empty if it has no note.

    Raises UsageError if a field is missing, or they are in another order.
    """
    fields = {}
    name = "Change"
    note = sections().get(path.stem, "")
    for paragraph in filter(None, note.split("\n\n")):
        label = FIELD.match(paragraph)
        if label:
            name = label[1]
            paragraph = paragraph[label.end() :]
        words = " ".join(LINK.sub(r"\1", paragraph).replace("`", "").split())
        fields[name] = f"{fields.get(name, '')} {words}".strip()
    required = [name for name in fields if name in FIELDS]
    if fields and (required != FIELDS or not fields.keys() <= {*FIELDS, *OPTIONAL}):
        raise UsageError(
            f"{relative_name(page_of(path))}, {title(path)}: its note has {[*fields]}, expected "
            f"{FIELDS}, then {OPTIONAL}"
        )
    return fields
