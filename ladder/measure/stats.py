"""Gains and how sure they are: Student's interval, p-values, Holm's correction."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit  # not scipy.stats, which takes a second to import

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


def gain_of(log_ratios: Iterable[float]) -> Gain:
    """The gain from one log ratio per round: their mean, with Student's 95 % interval."""
    ratios = np.fromiter(log_ratios, float)
    n = len(ratios)
    mean = float(ratios.mean())
    if n < MIN_ROUNDS:
        return Gain(math.exp(mean), None, None, n)
    error = float(ratios.std(ddof=1)) / math.sqrt(n)
    half = float(stdtrit(n - 1, 1 - ALPHA / 2)) * error  # n - 1 degrees of freedom
    p = 1.0 if mean == 0 else 0.0  # where all rounds are equal
    if error > 0:
        p = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Gain(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n, p)


def holm(gains: Iterable[Gain | None]) -> None:
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
