"""What a climb, an ablation and a run of peers differ in: the one table that says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of interleaved runs, as climb.json names it."""

    what: str  # in the headings of RUNLOG.md, and on the page
    gain: str  # heading of the column of gains ...
    total: str  # ... and of the one beside it
    # Which row a script's diff is against: "above", "first" (and then the gain is that of the first
    # row over each other one) or none.
    against: str | None = None
    varied: str = ""  # what may differ between rows


KINDS = {
    "climb": Kind(
        what="the climb",
        gain="tok/s vs. previous",
        total="vs. first",
        against="above",
    ),
    "ablate": Kind(
        what="one optimisation left out",
        gain="the top rung is faster than without it by",
        total="beside the top",
        against="first",
    ),
    "batch": Kind(
        what="batch sizes",
        gain="tok/s over the rung above",
        total="over the first",
        varied="B",  # the rows are the rungs at the smallest B, then at the next one, and so on
    ),
    "peers": Kind(
        what="beside transformers",
        gain="tok/s over transformers, compiled",
        total="times its tok/s",
    ),
}


def kind_of(facts: dict) -> Kind:
    """The kind that climb.json names; a climb where there is none."""
    return KINDS[facts.get("kind", "climb")]
