"""Text on a screen: control characters are escaped, all others are shown as they are."""

import pytest

from ladder.text import printable


@pytest.mark.parametrize("character", ["世\u3000界", "👩\u200d👩", "e\u0301"])
def test_what_people_write_is_shown(character):
    assert printable(character) == character


# The last is a byte of a file name that is not UTF-8.
@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\udce9"])
def test_what_controls_a_terminal_is_escaped(character):
    assert printable(f"a{character}") == "a" + ascii(character)[1:-1]
    assert printable(character, keep=character) == character
