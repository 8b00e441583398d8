"""Gains and differences, and how sure they are: Student's interval, Holm's correction."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

ALPHA = 0.05  # an interval has 1 - ALPHA of confidence
MIN_ROUNDS = 3  # below, a gain has no interval


@dataclass
class Estimate:
    """The mean over the rounds, with its 95 % interval; below three rounds there is none."""

    value: float
    low: float
    high: float
    rounds: int
    p: float | None = None  # two-sided, of the hypothesis that there is no difference
    significant: bool = False  # set by `holm` for the table column that shows this


def mean_of(differences: list[float]) -> Estimate:
    """The mean of one difference per round, with Student's 95 % interval."""
    from scipy.special import stdtr, stdtrit  # not above: commands that need neither start at once

    n = len(differences)
    mean = sum(differences) / n
    if n < MIN_ROUNDS:
        return Estimate(mean, mean, mean, n)
    standard_error = statistics.stdev(differences) / math.sqrt(n)
    if standard_error == 0:  # they are all the same
        return Estimate(mean, mean, mean, n, 0.0 if mean else 1.0)
    half = stdtrit(n - 1, 1 - ALPHA / 2) * standard_error  # n - 1 degrees of freedom
    p = 2 * stdtr(n - 1, -abs(mean) / standard_error)
    return Estimate(mean, float(mean - half), float(mean + half), n, float(p))


def gain_of(log_ratios: list[float]) -> Estimate:
    """The factor from one log ratio per round: their geometric mean, with its 95 % interval."""
    gain = mean_of(log_ratios)
    gain.value = math.exp(gain.value)
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
