"""The rounds that a 5 % difference takes, in RUNLOG.md, by simulation: python PATH/check.py"""

from itertools import pairwise
from pathlib import Path

import numpy as np

from ladder.commands.results import Row, gain, read_climb, step_times
from ladder.commands.log import Log

HERE = Path(__file__).resolve().parent
random = np.random.default_rng(0)


def synthetic(scale, rounds, drift):
    """A row of `rounds` runs of one step, whose times differ by `drift`, relative."""
    times = scale * np.exp(random.normal(0, drift, rounds))
    logs = [Log(run={"B": "4", "T": "256"}, steps=[{"dt": dt}]) for dt in times]
    for log in logs:
        log.result["warmup_steps"] = 0
    return Row("synthetic", dict(enumerate(logs)))


variances = []
for above, row in pairwise(read_climb(HERE)[1]):
    medians = [[np.median(step_times(r.logs[k])) for k in row.logs] for r in (above, row)]
    variances.append(np.var(np.log(medians[0]) - np.log(medians[1]), ddof=1))
spread = np.sqrt(np.mean(variances))
text = " ".join((HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8").split())
assert f"a standard deviation of {spread:.1%} here".replace("%", " %") in text
said = "in 19 % of all climbs with three rounds, in 53 % with 6, in 83 % with 10 and in 99 % with 20"
assert said in text
for rounds, percent in ((3, 19), (6, 53), (10, 83), (20, 99)):
    rows = [[synthetic(x, rounds, spread / 2**0.5) for x in (1.05, 1)] for _ in range(2000)]
    named = sum(not gain(*pair).is_noise for pair in rows) / 20
    assert abs(named - percent) < 4, (rounds, named)
