"""Gains and how sure they are: Student's interval, p-values, Holm's correction."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

ALPHA = 0.05  # an interval has 1 - ALPHA of confidence
MIN_ROUNDS = 3  # below, a gain has no interval


@dataclass
class Gain:
    """How many times faster, with its 95 % interval; below three rounds there is none."""

    ratio: float
    low: float | None
    high: float | None
    rounds: int
    p: float | None = None  # two-sided, of the hypothesis that there is no difference
    significant: bool = False  # set by `holm` for the table column that shows this gain


def gain_of(log_ratios: list[float]) -> Gain:
    """The gain from one log ratio per round: their mean, with Student's 95 % interval."""
    from scipy.stats import ttest_1samp  # not above: it takes a second to import

    n = len(log_ratios)
    ratio = math.exp(sum(log_ratios) / n)
    if n < MIN_ROUNDS:
        return Gain(ratio, None, None, n)
    test = ttest_1samp(log_ratios, 0)  # n - 1 degrees of freedom
    low, high = test.confidence_interval(1 - ALPHA)
    return Gain(ratio, math.exp(low), math.exp(high), n, float(test.pvalue))


def holm(gains: Iterable[Gain | None]):
    """Set `significant` of the gains of one table column by Holm's correction.

    The smallest of m p-values has to be below 0.05 / m, the next one below 0.05 / (m - 1), and so
    on. From the first one that is not, none is significant. Where nothing differs, at most one
    table in twenty then has a significant gain.
    """
    tested = [gain for gain in gains if gain is not None and gain.p is not None]
    tested.sort(key=lambda gain: gain.p)
    survives = True
    for index, gain in enumerate(tested):
        survives = survives and gain.p < ALPHA / (len(tested) - index)
        gain.significant = survives
