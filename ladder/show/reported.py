"""What is known of a GPU, reported by others or calculated, and how a gain is written."""

import json
from functools import cache
from pathlib import Path


@cache
def known() -> dict[str, dict]:
    """known.json, by a card's name; dev/reports.py makes it of docs/reported.csv.

    `gain`: how many times as fast rung 10 is as the baseline. `training`: tok/s of ddp_run.py.
    `shares` of the roofline that were reported, the lowest and the highest.
    """
    return json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))


def gain_text(before: float, after: float) -> str:
    """What a step gains in speed, from the times before and after: `3.7 times`, or `+20 %`."""
    ratio = before / after
    if ratio >= 2:
        return f"{ratio:.1f} times"
    percent = (ratio - 1) * 100
    digits = 0 if abs(percent) >= 0.95 else 1
    text = f"{percent:+.{digits}f}"
    return f"{text} %".replace("-", "−") if float(text) else "no change"
