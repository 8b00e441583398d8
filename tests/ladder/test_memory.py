"""memory.py: the batch that fits a GPU."""

from ladder.cli import MODELS
from ladder.memory import baseline_batch


def test_the_largest_batch_that_fits_by_hand():
    """12 layers x 98,304 + 7,680 + 804,112 bytes a token, and 12 for each of the parameters."""
    needed = 8 * 1024 * 1_991_440 + 12 * 163_037_184
    memory = needed * 9 / 8 + 2e9
    assert baseline_batch(memory + 1e3, MODELS["gpt2"], 1024) == 8
    assert baseline_batch(memory - 1e3, MODELS["gpt2"], 1024) == 4
