"""Ratios of neighbours' times in each round, and their standard deviations: python PATH/table.py"""

from pathlib import Path

import numpy as np

from ladder.log import parse_log
from ladder.measure.folder import log_texts

NAMES = ("same_a", "same_b", "same_c", "slower_by_10_percent")
TEXTS = log_texts(Path(__file__).parent)
times = np.array(
    [
        [parse_log(TEXTS[f"{name}.r{k}"], name).result["median_ms"] for k in range(1, 11)]
        for name in NAMES
    ]
)  # (scripts, rounds)
ratios = np.log(times[:-1] / times[1:])  # of tok/s
for above, name, row in zip(NAMES, NAMES[1:], ratios, strict=False):
    print(f"{name} over {above}: standard deviation {row.std(ddof=1) * 100:.0f} %")
