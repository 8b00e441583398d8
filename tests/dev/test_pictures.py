"""The drawn pictures of docs/ that hold numbers: these are those of the logs and of the page."""

import re

import pytest

from ladder.files import ROOT
from ladder.measure.rows import read_climb


@pytest.mark.parametrize("variant", ["", "-narrow"])
def test_drawn_numbers(variant):
    beta2 = (ROOT / f"docs/beta2{variant}.svg").read_text("utf-8")
    for number in (2, 3):
        _, rows = read_climb(ROOT / f"logs/2026-11-26-amd-epyc-1-thread-climb-{number}")
        change = rows[1].loss_change
        words = f"+{-change.value:.3f} ({-change.high:.3f} to {-change.low:.3f})"
        assert words in beta2
    hours = re.findall(r", ([\d.]+) h<", (ROOT / f"docs/loss{variant}.svg").read_text("utf-8"))
    page = (ROOT / "docs" / "train.md").read_text("utf-8")
    assert len(hours) == 8 and all(f"| {number} |" in page for number in hours)
