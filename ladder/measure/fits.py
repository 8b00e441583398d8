"""The batch sizes, B, of GPT-2 124M at T=1024 that fit a card."""

from ladder.cards import GPU
from ladder.cli import BLOCK_SIZE, MODELS
from ladder.memory import baseline_batch, default_batch, memory_on_sale, train_batch


def largest_batch(gpu: GPU) -> int:
    """The largest B at which the baseline fits a card, or 0."""
    return baseline_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)


def batch_to_compare(gpu: GPU) -> int:
    """The scripts' default B on a card, at most 16."""
    return default_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)


def batch_to_train(gpu: GPU) -> int:
    """The default B of train.py on a card."""
    return train_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)
