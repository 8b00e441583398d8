"""The kinds of climb: all run several scripts in rounds, but they compare different rows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What the rows of one kind of climb are compared with, and the headings for that."""

    what: str  # in the headings of RUNLOG.md, and on the page
    gain_heading: str = ""  # of the column of gains; without one there are no gains
    total_heading: str = ""  # of the column beside it, if that says something else
    loss_heading: str = ""  # of the column of differences in loss; without one there are none
    # The other row of a gain. "previous": the row of the script that this one is built on, or the
    # row above if that script is not in the climb. "first": the first row. "top": the first row,
    # which is the top script there, and the gain is what that gains over this row.
    against: str = ""


KINDS = {
    "climb": Comparison(
        what="the climb",
        gain_heading="tok/s vs. previous",
        total_heading="vs. first",
        loss_heading="loss vs. previous, nats",
        against="previous",
    ),
    "without": Comparison(  # climb --without
        what="one optimisation left out",
        gain_heading="the top rung is faster than without it by",
        total_heading="beside the top",
        loss_heading="loss of the top rung vs. without it, nats",
        against="top",
    ),
    "batch-sizes": Comparison(  # climb --batch-sizes
        what="batch sizes",
    ),
    "transformers": Comparison(  # climb transformers …
        what="beside transformers",
        gain_heading="tok/s over transformers, compiled",
        against="first",
    ),
}
