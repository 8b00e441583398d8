"""What is known of a GPU: ranges that hold what others reported, and their reports."""

import json
from functools import cache
from pathlib import Path
from statistics import median

from ladder.show.words import gain_text, span

STEP_TOKENS = 524288  # of a step of train.py on a GPU
HOUR = 3600 * 0.97  # seconds of training: validation takes the rest


@cache
def known() -> dict[str, dict]:
    """known.json's cards by name; dev/reports.py makes it of docs/reported.csv.

    `chip`: data-center, RTX or float16. `gain`: how many times as fast rung 10 is as the baseline
    at one B, low and high. `baseline`: its tok/s there. `tok_per_s` of train.py, low and high;
    `middle` of it. `reports`: rung, who, B and tok_per_s of what others timed on this card.
    """
    return read()["cards"]


def rung_gains(chip: str) -> dict[str, list[float]]:
    """By rung, what it gained over the one timed before: one ladder of each author, sorted."""
    return read()["rungs"][chip]


@cache
def read() -> dict:
    """All of known.json."""
    return json.loads(Path(__file__).with_name("known.json").read_text("utf-8"))


def gains_text(gains: list[float]) -> tuple[str, str]:
    """The median of a rung's reported gains, and their range with the number of ladders: `+42 %`,
    `+18 to +50 % (6)`. Both are empty if nobody reported any."""
    if not gains:
        return "", ""
    middle = gain_text(median(gains))
    if len(gains) == 1:
        return middle, "(1)"
    low, high = gain_text(gains[0]), gain_text(gains[-1])
    if low[-1] == high[-1]:  # one unit is said once
        low = low.rpartition(" ")[0]
    return middle, f"{low} to {high} ({len(gains)})"


def hours_of(card: str, steps: int = 1000) -> str:
    """The hours of so many steps of train.py on a card, at its highest rate and its lowest."""
    rates = known()[card]["tok_per_s"]
    return span([steps * STEP_TOKENS / rate / HOUR for rate in reversed(rates)])
