"""What the losses of one run say: where it ends, and when it had come down to some loss."""

import numpy as np

from ladder.log import Log

MIN_STEPS = 100  # of runs whose losses are compared


def running_mean(values: list[float], width: int) -> np.ndarray:
    """The mean of each `width` values in a row: (values - width + 1,)."""
    return np.convolve(values, np.full(width, 1 / width), "valid")


def smooth_losses(log: Log) -> np.ndarray:
    """The loss, at each step the mean over a tenth of the run: (steps - width + 1,)."""
    losses = [step.loss for step in log.steps]
    return running_mean(losses, max(1, len(losses) // 10))


def end_loss(log: Log) -> float:
    """The mean loss of the last tenth of the steps."""
    return smooth_losses(log)[-1]


def stays_below(means: np.ndarray, loss: float) -> float:
    """The place from which on all `means` are at most `loss`; inf if the last is above it."""
    if means[-1] > loss:
        return np.inf
    above = np.flatnonzero(means > loss)
    return int(above[-1]) + 1 if len(above) else 0


def steps_to(loss: float, log: Log) -> float:
    """The step from which on the running mean stays at or below `loss`; inf if it ends above."""
    means = smooth_losses(log)
    first = len(log.steps) - len(means) + 1  # the step that the first mean ends with
    return first + stays_below(means, loss)
