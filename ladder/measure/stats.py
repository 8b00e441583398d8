"""Gains and differences, and how sure they are: Student's interval, Holm's correction."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

ALPHA = 0.05  # an interval has 1 - ALPHA of confidence
MIN_ROUNDS = 3  # below, a gain has no interval


@dataclass
class Estimate:
    """The mean over the rounds, with its 95 % interval; below three rounds there is none."""

    value: float
    low: float | None
    high: float | None
    rounds: int
    p: float | None = None  # two-sided, of the hypothesis that there is no difference
    significant: bool = False  # set by `holm` for the table column that shows this


def mean_of(differences: list[float]) -> Estimate:
    """The mean of one difference per round, with Student's 95 % interval."""
    from scipy.stats import ttest_1samp  # not above: it takes a second to import

    n = len(differences)
    mean = sum(differences) / n
    if n < MIN_ROUNDS:
        return Estimate(mean, None, None, n)
    if not any(differences):  # the test divides by their spread
        return Estimate(0.0, 0.0, 0.0, n, 1.0)
    test = ttest_1samp(differences, 0)  # n - 1 degrees of freedom
    low, high = test.confidence_interval(1 - ALPHA)
    return Estimate(mean, low, high, n, float(test.pvalue))


def gain_of(log_ratios: list[float]) -> Estimate:
    """The factor from one log ratio per round: their geometric mean, with its 95 % interval."""
    gain = mean_of(log_ratios)
    gain.value = math.exp(gain.value)
    if gain.low is not None:
        gain.low, gain.high = math.exp(gain.low), math.exp(gain.high)
    return gain


def holm(gains: Iterable[Estimate | None]):
    """Set `significant` of the gains of one table column by Holm's correction.

    The smallest of m p-values has to be below 0.05 / m, the next one below 0.05 / (m - 1), and so
    on. From the first one that is not, none is significant. Where nothing differs, at most one
    column in twenty then has a significant gain.
    """
    tested = [gain for gain in gains if gain is not None and gain.p is not None]
    tested.sort(key=lambda gain: gain.p)
    survives = True
    for index, gain in enumerate(tested):
        survives = survives and gain.p < ALPHA / (len(tested) - index)
        gain.significant = survives
