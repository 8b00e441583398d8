"""What is known of a GPU, reported by others or calculated, and how a gain is written."""

import json
from functools import cache
from pathlib import Path


@cache
def known() -> dict[str, dict]:
    """known.json, by a card's name; dev/reports.py makes it of docs/reported.csv.

    `gain`: how many times as fast rung 10 is as the baseline. `training`: tok/s of ddp_run.py.
    `tok_per_s`: its ends. `shares` of the roofline that were reported, the lowest and the highest.
    """
    return json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
