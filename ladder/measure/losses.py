"""What the losses of one run say: where it ends, and when it had come down to some loss."""

import numpy as np

from ladder.log import Log

MIN_STEPS = 100  # of runs whose losses are compared


def running_mean(values, width: int) -> np.ndarray:
    """The mean of each `width` values in a row: (values - width + 1,)."""
    return np.convolve(values, np.full(width, 1 / width), "valid")


def smooth_losses(log: Log) -> np.ndarray:
    """The loss, at each step the mean over a tenth of the run: (steps - width + 1,)."""
    losses = [step["loss"] for step in log.steps]
    return running_mean(losses, max(1, len(losses) // 10))


def end_loss(log: Log) -> float:
    """The mean loss of the last tenth of the steps."""
    return smooth_losses(log)[-1]


def steps_to(loss: float, log: Log) -> float:
    """The first step at which the running mean had come down to `loss`; inf if it never did."""
    means = smooth_losses(log)
    if means.min() > loss:
        return np.inf
    first = len(log.steps) - len(means) + 1  # the step that the first mean ends with
    return first + np.argmax(means <= loss)
