"""Losses of rung 10 and of the candidates after 200 steps, from these logs: python PATH/table.py"""

from pathlib import Path

import numpy as np

from ladder.log import parse_log
from ladder.measure.folder import log_texts

logs = [parse_log(text, name) for name, text in log_texts(Path(__file__).parent).items()]
assert {(log.run["model"], log.run["B"], log.run["T"]) for log in logs} == {("tiny", "2", "64")}
assert {(log.run["steps"], log.run["seed"], log.run["data"]) for log in logs} == {
    ("200", "1337", "tinyshakespeare")
}
assert all(log.result["status"] == "ok" for log in logs)
curves = np.array([[step["loss"] for step in log.steps] for log in logs])  # (scripts, 200)
tails = curves[:, -50:].mean(axis=1)
print("| script | loss at step 200 | mean of the last 50 | beside rung 10 | largest in a step |")
print("| --- | ---: | ---: | ---: | ---: |")
for log, curve, tail in zip(logs, curves, tails, strict=True):
    name = Path(log.run["script"]).stem
    apart = abs(curve - curves[0]).max()
    print(f"| {name} | {curve[-1]:.4f} | {tail:.4f} | {tail - tails[0]:+.4f} | {apart:.4f} |")
