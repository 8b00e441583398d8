"""What each script of memory/ must do, and mistakes that its check must find: as in speedups.py."""

import torch
from helpers import random_batch
from models import tiny

B, T, V = 2, 48, 2048  # V is small, for speed


def kept(module) -> int:
    """Bytes that a forward pass keeps for the backward pass, besides the weights."""
    model = tiny(module, vocab_size=V)
    storages = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _ = model(*random_batch(B, T, V))
    for p in model.parameters():
        storages.pop(p.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def check_chunked_loss(module, base, _):
    logits = B * T * V * 4  # bytes
    assert kept(module) < kept(base) - logits
    x, y = random_batch(B, T, V)
    expected = tiny(base, vocab_size=V)(x, y)
    torch.testing.assert_close(tiny(module, vocab_size=V)(x, y), expected)


def check_checkpointed_blocks(module, base, _):
    assert kept(module) < kept(base) / 4


MISTAKES = [
    (
        "chunked_loss",
        "checkpoint(self.part_loss, part, part_targets, use_reentrant=False)",
        "self.part_loss(part, part_targets)",
    ),
    ("chunked_loss", "loss / targets.numel()", "loss / len(targets)"),
    ("checkpointed_blocks", "checkpoint(block, x, use_reentrant=False)", "block(x)"),
]
