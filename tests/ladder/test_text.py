"""text.py: what a terminal shows."""

import pytest

from ladder.measure.process import without_home
from ladder.text import printable


# The last is a byte of a file name that is not UTF-8.
@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\udce9"])
def test_what_controls_a_terminal_is_escaped_and_what_people_write_is_not(character):
    people = "世\u3000界 👩\u200d👩 e\u0301"
    assert printable(people + character) == people + ascii(character)[1:-1]
    assert printable(character, keep=character) == character


@pytest.mark.parametrize(
    ("home", "text", "sent"),
    [
        ("/home/ann", "cannot open /home/ann/a: /home/ann", "cannot open ~/a: ~"),
        ("/home/ann", "/home/anna/a /mnt/home/ann/b", "/home/anna/a /mnt/home/ann/b"),
        ("/", "/data/a", "/data/a"),
        ("", "/data/a", "/data/a"),
    ],
)
def test_the_users_home_is_not_sent(home, text, sent, monkeypatch):
    monkeypatch.setenv("HOME", home)
    assert without_home(text) == sent
