"""scripts.py: which scripts a word names."""

import pytest

from ladder.errors import UsageError
from ladder.files import ROOT
from ladder.measure import scripts
from ladder.measure.scripts import all_scripts, branch, number_of, select


def test_a_range_of_numbers_names_candidates_too():
    last = number_of(branch("candidates")[-1])
    assert select([f"{last - 1}-{last}"]) == branch("candidates")[-2:]


def test_a_number_that_two_branches_have_is_refused(monkeypatch):
    mine = ROOT / "cpu" / "13_my_idea.py"
    monkeypatch.setattr(scripts, "all_scripts", lambda: [*all_scripts(), mine])
    with pytest.raises(UsageError, match="13 is 13_loss_only or 13_my_idea: write its name"):
        select(["13"])
    assert select(["my_idea", "loss_only"])[0] == mine
