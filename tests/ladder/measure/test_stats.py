"""stats.py: the rule that tells a gain from noise."""

import numpy as np
import pytest
from climbs import HERE, LOGS

from ladder.measure.rows import read_climb
from ladder.measure.stats import Estimate, gain_of, holm


def test_a_gain_has_student_s_interval_and_p_value():
    """By hand: log ratios 1, 2 and 3 have the mean 2 and the standard error 1/√3; the tables have
    t = 4.302653 for two degrees of freedom. There p = 1 - t / √(2 + t²), of t = 2√3."""
    found = gain_of([1, 2, 3])
    half = 4.302653 / 3**0.5
    assert np.log([found.value, found.low, found.high]) == pytest.approx([2, 2 - half, 2 + half])
    assert found.p == pytest.approx(1 - (12 / 14) ** 0.5) and found.rounds == 3
    assert gain_of([1, 2]).p is None


def test_holm_s_correction_is_over_the_whole_column():
    """With four p-values the bounds are 0.05/4, 0.05/3, 0.05/2 and 0.05, from the smallest on."""

    def significant(*values):
        gains = [value if value is None else Estimate(1, 1, 1, 3, value) for value in values]
        holm(gains)
        return [gain and gain.significant for gain in gains]

    assert significant(0.005, 0.01, 0.03, 0.04) == [True, True, False, False]
    assert significant(0.04, 0.012, None, 0.016, 0.024) == [True, True, None, True, True]
    assert significant(0.04, 0.013, 0.016, 0.024) == [False] * 4  # the first one that fails ends it


@pytest.mark.parametrize("rounds", [3, 6, 10])
def test_two_identical_scripts_differ_once_in_twenty(rounds):
    """Their runs differ from the median of their script as those of logs/…-rule-10-rounds do."""
    deviations = []
    for row in read_climb(LOGS / f"{HERE}-rule-10-rounds").rows:
        medians = [np.log(np.median(row.logs[k].step_times)) for k in sorted(row.logs)]
        deviations += list(medians - np.median(medians))
    random = np.random.default_rng(rounds)
    significant = 0
    for _ in range(3000):
        before, after = random.choice(deviations, (2, rounds))
        significant += gain_of(before - after).p < 0.05
    assert 0.035 < significant / 3000 < 0.065
