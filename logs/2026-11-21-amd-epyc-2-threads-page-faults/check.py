"""The page faults that RUNLOG.md names are those that were counted: python PATH/check.py"""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent

counted = re.findall(r": (\d+) page faults a step", (HERE / "page_faults.txt").read_text())
ten, eleven = map(int, counted)
said = " ".join((HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8").split())
assert f"rung 10 takes {ten:,} page faults a step and rung 11 {eleven or 'none'}" in said
