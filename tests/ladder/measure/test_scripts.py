"""scripts.py: which scripts a word names."""

import pytest

from ladder.errors import UsageError
from ladder.measure.scripts import number_of, select


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("3-99", "there is no rung 99 that goes on from 3"),
        ("99", "there is no rung 99 that goes on from 99"),
        ("11-31", "there is no rung 31 that goes on from 11: name each rung"),
        ("7-3", "there is no rung 3 that goes on from 7: name each rung"),
    ],
)
def test_a_range_that_is_none_is_refused(word, why):
    with pytest.raises(UsageError, match=why):
        select([word])


def test_a_range_follows_the_rungs_that_go_on_from_each_other():
    """31 goes on from 10: the rungs for CPUs are not between them."""
    numbers = [number_of(path) for path in select(["8-31"])]
    assert numbers == [8, 9, 10, 31]
    assert [number_of(path) for path in select(["0-12"])] == list(range(13))
