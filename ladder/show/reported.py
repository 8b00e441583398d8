"""What others reported: one step on each of 22 GPUs."""

import csv
from pathlib import Path

from ladder.measure.rates import CARDS, rates_of
from ladder.measure.work import roofline_ms, work


def reported_gpus() -> list[dict]:
    """reported_gpus.csv: a row per GPU and B, what a step took elsewhere."""
    text = Path(__file__).with_name("reported_gpus.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()[1:], quoting=csv.QUOTE_NONNUMERIC))


def share_of(row: dict) -> float:
    """The share of the roofline that a row of `reported_gpus` reached, with one AdamW a step."""
    step = work(int(row["B"]))[row["rung"]]
    # Adding up the gradients is not counted: 3 % of a step at B=8, less above.
    *batch, optimizer = roofline_ms(step, rates_of(CARDS[row["gpu"]]))
    return (row["grad_accum_steps"] * sum(batch) + optimizer) / row["ms_a_step"]


def reported_shares() -> dict[str, float]:
    """`share_of` each reported GPU at its fastest B, by its name."""
    rows = sorted(reported_gpus(), key=lambda row: row["tok_per_s"])
    return {row["gpu"]: share_of(row) for row in rows}
