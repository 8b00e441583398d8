"""What a climb, a batch, an ablation and a run of peers differ in: the one table that says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What the rows of one kind of climb are compared with, and the headings for it."""

    what: str  # in the headings of RUNLOG.md, and on the page
    gain: str = ""  # heading of the column of gains; without one there are no gains ...
    total: str = ""  # ... and of the column beside it
    # Which row the gain and the diff of a row are against. "above": that of the script it goes on
    # from, else the one above. "first": the first one, whose gain over this row is shown.
    # None: there is no diff, and the gain is over the first row.
    against: str | None = None
    varied: str = ""  # what may differ between rows


KINDS = {
    "climb": Comparison(
        what="the climb",
        gain="tok/s vs. previous",
        total="vs. first",
        against="above",
    ),
    "ablate": Comparison(
        what="one optimisation left out",
        gain="the top rung is faster than without it by",
        total="beside the top",
        against="first",
    ),
    "batch": Comparison(
        what="batch sizes",
        varied="B",  # the rows are the rungs at the smallest B, then at the next one, and so on
    ),
    "peers": Comparison(
        what="beside transformers",
        gain="tok/s over transformers, compiled",
        total="times its tok/s",
    ),
}


def kind_of(climb: dict) -> Comparison:
    """The kind that climb.json names."""
    return KINDS[climb["kind"]]
