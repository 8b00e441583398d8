"""stats.py: the rule that tells a gain from noise."""

import numpy as np
import pytest
from climbs import HERE, LOGS, as_row

from ladder.measure.rows import gain, read_climb, step_times
from ladder.measure.stats import Gain, gain_of, holm


@pytest.fixture(scope="module")
def identical():
    """identical(random, *size): log times of the steps of so many runs of one script.

    They vary as in the ten rounds of logs/…-rule-10-rounds: each run as one of those differs from
    the median of its script, each step as one of a single of those runs differs from its median.
    """
    runs = []
    steps = []
    for row in read_climb(LOGS / f"{HERE}-rule-10-rounds")[1]:
        times = np.log([step_times(log) for log in row.logs.values()])  # (rounds, steps)
        medians = np.median(times, axis=1)
        runs.append(medians - np.median(medians))
        steps.append(times - medians[:, None])
    runs = np.concatenate(runs)
    steps = np.concatenate(steps)

    def draw(random, *size):
        of = steps[random.integers(len(steps), size=size)]
        drawn = np.take_along_axis(of, random.integers(of.shape[-1], size=of.shape), axis=-1)
        return random.choice(runs, (*size, 1)) + drawn

    return draw


def test_a_gain_has_student_s_interval_and_p_value():
    """By hand: log ratios 1, 2 and 3 have the mean 2 and the standard error 1/√3; the tables have
    t = 4.302653 for two degrees of freedom. There p = 1 - t / √(2 + t²), of t = 2√3."""
    found = gain_of([1, 2, 3])
    half = 4.302653 / 3**0.5
    assert np.log([found.ratio, found.low, found.high]) == pytest.approx([2, 2 - half, 2 + half])
    assert found.p == pytest.approx(1 - (12 / 14) ** 0.5) and found.rounds == 3
    assert gain_of([1, 2]).low is None and gain_of([1, 2]).p is None


def test_holm_s_correction_is_over_the_whole_column():
    """With four p-values the bounds are 0.05/4, 0.05/3, 0.05/2 and 0.05, from the smallest on."""

    def significant(*values):
        gains = [value if value is None else Gain(1, 1, 1, 3, value) for value in values]
        holm(gains)
        return [gain and gain.significant for gain in gains]

    assert significant(0.005, 0.01, 0.03, 0.04) == [True, True, False, False]
    assert significant(0.04, 0.012, None, 0.016, 0.024) == [True, True, None, True, True]
    assert significant(0.04, 0.013, 0.016, 0.024) == [False] * 4  # the first one that fails ends it
    assert significant(0.04) == [True]
    without_interval = Gain(2, None, None, 2)
    holm([without_interval])
    assert not without_interval.significant


@pytest.mark.parametrize("rounds", [3, 6, 10])
def test_two_identical_scripts_differ_once_in_twenty(rounds, identical):
    times = np.exp(identical(np.random.default_rng(rounds), 1000, 2, rounds))
    pairs = [(as_row(a), as_row(b)) for a, b in times]
    assert 33 <= sum(gain(*pair).p < 0.05 for pair in pairs) <= 67  # 50: by 2.5 deviations
