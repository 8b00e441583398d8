"""What holds for every script: its docstring and its note."""

import pytest
from helpers import rung

from ladder.measure.notes import describe, docstring, page_of, sections, title
from ladder.measure.scripts import ON_SEVERAL_GPUS, all_scripts, base_of

DOCUMENTED = [*all_scripts(), *ON_SEVERAL_GPUS]


@pytest.mark.parametrize("path", DOCUMENTED, ids=lambda path: path.stem)
def test_docstring_lists_what_the_script_has(path):
    """The list of the script before it, and one line, whose name is that of its note."""
    first, lines, *_, last = docstring(path).split("\n\n")
    assert (first, last) == ("GPT-2 (124M), trained with:", docstring(rung(0)).split("\n\n")[-1])
    base = base_of(path)
    before = docstring(base).split("\n\n")[1].splitlines() if base else []
    assert lines.splitlines()[: len(before)] == before
    assert len(lines.splitlines()) == len(before) + 1
    noted = f"## [{title(path)}](" in page_of(path).read_text()
    assert noted, f"{page_of(path)} has no heading ## [{title(path)}]({path.name})"


def test_each_script_has_its_note_in_order():
    for path in DOCUMENTED:
        assert describe(path), f"{path.stem} has no note in {page_of(path)}"
    assert [*sections()] == [path.stem for path in sorted(DOCUMENTED, key=page_of)]
