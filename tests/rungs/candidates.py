"""What each script of candidates/ must do, as far as a CPU can tell: as in speedups.py."""

import torch
from helpers import random_batch
from models import tiny

B, T, V = 2, 48, 2048  # V is small, for speed


def check_loss_only(module, *_):
    model = tiny(module, vocab_size=V)
    x, y = random_batch(B, T, V)
    logits, none = model(x)
    assert logits.shape == (B, T, V) and none is None
    assert model(x, y)[0] is None


def check_bf16_residual(module, *_):
    model = tiny(module, vocab_size=V)
    found = []

    def note_dtypes(_, inputs, output):
        found.append(inputs[0].dtype)
        found.append(output.dtype)

    for block in model.transformer.h:
        block.register_forward_hook(note_dtypes)
    for dtype in (torch.bfloat16, torch.float16):  # float16: a GPU without bfloat16 units
        found.clear()
        with torch.autocast("cpu", dtype):
            model(*random_batch(B, T, V))
        assert found == [dtype] * 8  # of four blocks


MISTAKES = [
    ("loss_only", "return None, F.cross_entropy", "return logits, F.cross_entropy"),
    ("bf16_residual", "x = x.to(torch.get", "x.to(torch.get"),
]
