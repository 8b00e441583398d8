"""The rounds that a 5 % difference takes, in RUNLOG.md, by simulation: python PATH/check.py

It asks ladder.commands.results.gain: RUNLOG.md says what that found as this climb was published.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np

from ladder.commands.results import Row, gain, read_climb, step_times
from ladder.log import Log

HERE = Path(__file__).resolve().parent
random = np.random.default_rng(0)


def synthetic(scale, repeats, drift, noise=0.03):
    """A row whose runs differ by `drift` and whose steps differ by `noise`, both relative."""
    logs = {}
    for repeat in range(repeats):
        times = scale * np.exp(random.normal(0, drift)) * np.exp(random.normal(0, noise, 14))
        steps = [{"dt": dt} for dt in times]
        logs[repeat] = Log(run={"B": "4", "T": "256"}, steps=steps, result={"warmup_steps": 0})
    return Row("synthetic", logs)


variances = []
for above, row in pairwise(read_climb(HERE)[1]):
    medians = [[np.median(step_times(r.logs[k])) for k in row.logs] for r in (above, row)]
    variances.append(np.var(np.log(medians[0]) - np.log(medians[1]), ddof=1))
spread = np.sqrt(np.mean(variances))
text = (HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8")
assert f"a standard deviation of {spread:.1%} here".replace("%", " %") in " ".join(text.split())
for repeats, least, most in ((10, 40, 60), (20, 78, 94), (25, 88, 100)):
    rows = [[synthetic(x, repeats, spread / 2**0.5) for x in (1.05, 1)] for _ in range(100)]
    assert least <= sum(not gain(*pair).is_noise for pair in rows) <= most, repeats
