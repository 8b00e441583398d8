"""console.py: what a terminal shows, and what a pipe gets."""

import io

import pytest

from ladder.show.console import Screen
from ladder.text import printable

LONG = "a run is under way, and its line is long"


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a run is un\r\x1b[2K"), (False, "")])
def test_a_line_for_now_is_replaced_by_the_next_one_and_not_piped(terminal, shown, monkeypatch):
    """Nor into a pipe whose colours FORCE_COLOR asks for, as in a notebook."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    monkeypatch.setattr(file, "isatty", lambda: terminal)
    console = Screen(file=file, width=12)
    console.now(LONG)
    console.say("it is done")
    assert file.getvalue() == f"{shown}it is done\n"


# ------------------------------------------------------------------ text


# The last is a byte of a file name that is not UTF-8.
@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\udce9"])
def test_what_controls_a_terminal_is_escaped_and_what_people_write_is_not(character):
    people = "世\u3000界 👩\u200d👩 e\u0301"
    assert printable(people + character) == people + ascii(character)[1:-1]
    assert printable(character, keep=character) == character
