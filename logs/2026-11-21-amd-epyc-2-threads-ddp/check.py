"""RUNLOG.md's scaling from one rank to two is what these logs say: python PATH/check.py"""

import statistics
from pathlib import Path

from ladder.commands.log import read_log

HERE = Path(__file__).resolve().parent


def line(name, one, two, ratio):
    return f"| {name} | {one} | {two} | {ratio:.2f} | {ratio / 2:.0%} |".replace("%", " %")


rates = []
for ranks in (1, 2):
    logs = [read_log(path) for path in sorted(HERE.glob(f"ranks_{ranks}.r*.log"))]
    assert {log.run["ranks"] for log in logs} == {str(ranks)}
    rates.append([log.result["tok_per_s"] for log in logs])
pairs = list(zip(*rates, strict=True))
lines = [line(i, one, two, two / one) for i, (one, two) in enumerate(pairs, 1)]
ratio = statistics.median(two / one for one, two in pairs)
lines.append(line("median", *map(statistics.median, rates), ratio))
assert "\n".join(lines) in (HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8")
