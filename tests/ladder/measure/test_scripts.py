"""scripts.py: which scripts a word names."""

import pytest

from ladder.errors import UsageError
from ladder.files import ROOT
from ladder.measure import scripts
from ladder.measure.scripts import all_scripts, branch, number_of, select


def test_a_range_of_numbers_names_candidates_too():
    last = number_of(branch("candidates")[-1])
    assert select([f"{last - 1}-{last}"]) == branch("candidates")[-2:]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("3-99", r"no rung has a number 99: they end with \d\d"),
        ("99", "no rung has a number 99"),
        ("11-13", "13 does not go on from 11: name each rung"),
        ("7-3", "3 does not go on from 7: name each rung"),
    ],
)
def test_a_range_that_is_none_is_refused(word, why):
    with pytest.raises(UsageError, match=why):
        select([word])


def test_a_range_follows_the_rungs_that_go_on_from_each_other():
    """13 goes on from 10: the rungs for CPUs are not between them."""
    numbers = [number_of(path) for path in select(["8-13"])]
    assert numbers == [8, 9, 10, 13]
    assert [number_of(path) for path in select(["0-12"])] == list(range(13))


def test_a_number_that_two_branches_have_is_refused(monkeypatch):
    mine = ROOT / "cpu" / "13_my_idea.py"
    monkeypatch.setattr(scripts, "all_scripts", lambda: [*all_scripts(), mine])
    with pytest.raises(UsageError, match="13 is 13_loss_only or 13_my_idea: write its name"):
        select(["13"])
    assert select(["my_idea", "loss_only"])[0] == mine
