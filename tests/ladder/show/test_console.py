"""console.py: what a terminal shows, and what a pipe gets."""

import io

from ladder.show.console import Screen

LONG = "a run is under way, and its line is long"


def test_a_sentence_is_wrapped_on_a_terminal_only():
    for terminal in (True, False):
        file = io.StringIO()
        Screen(file=file, force_terminal=terminal, width=12).say(LONG)
        assert (max(map(len, file.getvalue().splitlines())) <= 12) == terminal
