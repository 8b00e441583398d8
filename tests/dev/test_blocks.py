"""blocks.py: the generated parts of README.md."""

import blocks
from climbs import PUBLISHED

from ladder.files import ROOT
from ladder.measure.rows import read_climb


def test_the_table_of_rungs_counts_lines_and_tells_reported_from_calculated():
    table = blocks.rungs_table()
    for line in (
        "| A100, reported, B=16 | RTX 4070, calculated, B=2 |",
        "| +1 | the update of 38.6M parameters |  | 174 ms |",
        "| +1 −1 | misaligned rows of the logits | 93 ms | as 06 |",
        "| +11 −2 | for the loss; costs a little time |  | 61 ms |",
    ):
        assert line in table


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


def test_a_card_has_the_batch_that_fits_and_the_roofline_at_it():
    rtx_4090 = "| RTX 4090 | 24 | 8 | 25,000 | +17 % | 4.4 times | 32 | 120,000 |"
    assert rtx_4090 in blocks.cards_table().splitlines()
    more = blocks.more_cards_table().splitlines()
    assert "| A100 40GB | 40 | 16 | 14,000 | 3.0 times | 12.0 times | 32 | 180,000 |" in more
    assert "| MI300X | 192 | 16 | – | – | – | 256 | – |" in more
