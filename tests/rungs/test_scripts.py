"""What holds for every script: its docstring."""

import pytest
from helpers import SCRIPTS, rung

from ladder.files import ROOT
from ladder.measure.docstrings import describe, title


@pytest.mark.parametrize("number", SCRIPTS)
def test_docstring_has_its_fields(number):
    path = rung(number)
    fields = describe(path)
    assert title(path).startswith(f"{number:02d} ")
    assert fields["Run"] == f"python {path.relative_to(ROOT).as_posix()}"
