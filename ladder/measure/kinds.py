"""The kinds of climb: all run several scripts in rounds, but they compare different rows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What the rows of one kind of climb are compared with, and the headings for that."""

    what: str  # in the headings of RUNLOG.md, and on the page
    gain: str = ""  # heading of the column of gains; without one there are no gains ...
    total: str = ""  # ... and of the column beside it
    loss: str = ""  # heading of the column of differences in loss; without one there are none
    # The other row of a gain. "previous": the row of the script that this one goes on from, or the
    # row above if that script is not in the climb. "first": the first row. "top": the first row,
    # which is the top script there, and the gain is what that gains over this row.
    against: str = ""
    varied: str = ""  # what may differ between rows


KINDS = {
    "climb": Comparison(
        what="the climb",
        gain="tok/s vs. previous",
        total="vs. first",
        loss="loss vs. previous, nats",
        against="previous",
    ),
    "ablate": Comparison(  # climb --without
        what="one optimisation left out",
        gain="the top rung is faster than without it by",
        total="beside the top",
        loss="loss of the top rung vs. without it, nats",
        against="top",
    ),
    "batch": Comparison(  # climb --batch-sizes
        what="batch sizes",
        varied="B",
    ),
    "peers": Comparison(  # climb transformers …
        what="beside transformers",
        gain="tok/s over transformers, compiled",
        total="times its tok/s",
        against="first",
    ),
}
