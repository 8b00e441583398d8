"""text.py: what a terminal shows."""

import pytest

from ladder.text import printable


# The last is a byte of a file name that is not UTF-8.
@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\udce9"])
def test_what_controls_a_terminal_is_escaped_and_what_people_write_is_not(character):
    people = "世\u3000界 👩\u200d👩 e\u0301"
    assert printable(people + character) == people + ascii(character)[1:-1]
    assert printable(character, keep=character) == character
