"""Text on a screen: control characters are escaped, all others are shown as they are."""

import pytest

from ladder.text import printable


@pytest.mark.parametrize("text", ["世\u3000界", "👩\u200d👩", "e\u0301"])
def test_what_people_write_is_shown(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("character", "escaped"),
    [
        ("\x1b", r"\x1b"),
        ("\u202e", r"\u202e"),
        ("\udce9", r"\udce9"),  # a byte of a file name that is not UTF-8
    ],
)
def test_what_controls_a_terminal_is_escaped(character, escaped):
    assert printable(f"a{character}b") == f"a{escaped}b"
    assert printable(f"a{character}b", keep=character) == f"a{character}b"
