"""What is known of a GPU: reported by others, or calculated."""

import json
from functools import cache
from pathlib import Path

from ladder.show.words import span

STEP_TOKENS = 524288  # of a step of ddp_run.py on a GPU
HOUR = 3600 * 0.97  # seconds of training: validation takes the rest


@cache
def known() -> dict[str, dict]:
    """known.json, by a card's name; dev/reports.py makes it of docs/reported.csv.

    `gain`: how many times as fast rung 10 is as the baseline. `training_gain`: each at
    the largest B that it fits. `training`: tok/s of ddp_run.py.
    `tok_per_s`: its ends. `shares` of the roofline that were reported, the lowest and the highest.
    """
    return json.loads(Path(__file__).with_name("known.json").read_text("utf-8"))


def hours_of(card: str) -> str:
    """The hours of 1,000 steps of ddp_run.py on a card, at its fastest rate and its slowest."""
    rates = known()[card]["tok_per_s"]
    return span([1000 * STEP_TOKENS / rate / HOUR for rate in reversed(rates)])
