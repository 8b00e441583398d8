"""Text that cannot control a terminal, and how it is printed."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# C0 and C1, line separators, what turns the direction of writing, halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""`text` with its control characters escaped (a newline as \n), except those in `keep`."""

    def escaped(found: re.Match) -> str:
        character = found[0]
        if character in keep:
            return character
        return character.encode("unicode_escape").decode()

    return CONTROL.sub(escaped, text)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` of the name that is most like `word`; empty if none is."""
    close = get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def say(line: str):
    """Print one line as logs have it: a file name in it cannot control the terminal."""
    print(printable(line))
