"""blocks.py: the generated parts of README.md."""

import blocks
from climbs import PUBLISHED

from ladder.files import ROOT
from ladder.measure.rows import read_climb


def test_what_was_measured_says_what_the_logs_say():
    """In any order of the climb: a gain is over the rung before."""
    climb, rows = read_climb(PUBLISHED)
    rows = [rows[i] for i in (0, 3, 1, 2, *range(4, len(rows)))]
    text = blocks.measured(("logs/x", climb, rows))
    assert "Rung 10 is 3.24× (2.95 … 3.56) as fast as the baseline" in text
    assert "rung 12 4.23× (3.78 … 4.74): 861 instead of 204 tokens" in text
    assert (
        "rung 10 is not clearly faster, +4.0 % (−4.9 … +13.7), and rung 12 is faster, +22.4" in text
    )
    assert blocks.NO_GPU in text
    marker = f"<!-- measured {PUBLISHED.relative_to(ROOT).as_posix()} -->"
    made = blocks.render(f"{marker}\n<!-- end -->")
    assert "3.24× (2.95\N{NO-BREAK SPACE}…\N{NO-BREAK SPACE}3.56)" in made  # on one line
