"""RUNLOG.md's losses and gradients after 200 steps are what these logs say: python PATH/check.py"""

import math
import re
import statistics
from pathlib import Path

import numpy as np

from ladder.commands.log import read_log

HERE = Path(__file__).resolve().parent
T_95 = {3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, by the number of seeds

text = (HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8")
losses, curves = [], []
for stem in ("10_fused_adamw", "12_causal_blocks"):
    logs = [read_log(path) for path in sorted(HERE.glob(f"{stem}.seed*.log"))]
    assert {(log.run["model"], log.run["steps"]) for log in logs} == {("gpt2", "200")}
    assert all(log.result["status"] == "ok" for log in logs)
    losses.append({log.run["seed"]: log.result["final_loss"] for log in logs})
    curves.append(np.array([[step["loss"] for step in log.steps] for log in logs]))
before, after = losses
change = {seed: after[seed] - before[seed] for seed in before}
lines = [f"| {s} | {before[s]:.4f} | {after[s]:.4f} | {change[s]:+.4f} |" for s in before]
mean = statistics.mean(change.values())
bound = 2 * statistics.stdev(change.values()) / len(change) ** 0.5
lines.append(f"| mean | | | {mean:+.4f} (two standard errors: {bound:.4f}) |")
assert "\n".join(lines).replace("-", "−") in text
assert abs(mean) < bound
worst = mean + T_95[len(change)] * bound / 2
assert f"a harm of more than {math.ceil(worst * 1e3) / 1e3} is excluded" in text
apart = abs(curves[1] - curves[0])  # (seeds, steps)
assert apart[:, :10].max() < 0.001
assert f"by up to {apart.max():.2f} in a single step" in text
found = re.findall(r"all (\S+), worst (\S+)", (HERE / "gradients.txt").read_text(encoding="utf-8"))
assert len(found) == 3
for errors in found:
    assert "| " + " | ".join(f"{float(e):.5f}" if float(e) else "0" for e in errors) + " |" in text
