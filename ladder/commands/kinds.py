"""What a climb, an ablation and a run of peers differ in: the one table that says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of interleaved runs, as climb.json names it."""

    what: str  # in the headings of RUNLOG.md, and on the page
    gain: str  # heading of the column of gains ...
    total: str  # ... and of the one beside it
    against: str | None = None  # which row a script's diff is against: "above", "first" or none
    gain_of_first: bool = False  # the gain is that of the first row over each other one
    compared: str = ""  # heading where several climbs of this kind are compared; empty: never
    named_from: int | None = 0  # the command line names the scripts from here on; None: none
    varied: str = ""  # what may differ between rows


KINDS = {
    "climb": Kind(
        what="the climb",
        gain="tok/s over the row above",
        total="over the first",
        against="above",
        compared="Gain over the row above",
    ),
    "ablate": Kind(
        what="one optimisation left out",
        gain="the top rung is faster than without it by",
        total="beside the top",
        against="first",
        gain_of_first=True,
        compared="Left out of the top rung",
        named_from=1,
    ),
    "batch": Kind(
        what="batch sizes",
        gain="tok/s over the first",
        total="times its tok/s",
        varied="B",
    ),
    "peers": Kind(
        what="beside transformers",
        gain="tok/s over transformers, compiled",
        total="times its tok/s",
        named_from=None,
    ),
}


def kind_of(facts: dict) -> Kind:
    """The kind that climb.json names; a climb where there is none."""
    return KINDS[facts.get("kind", "climb")]
