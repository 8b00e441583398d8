"""Peak of a validation of gpt2 at B=64, T=1024: bytes of all tensors beside the weights, counted on
fake tensors, as ddp_run.py did it (logits whole, in FP32) and does it.

    python validation.py
"""

import torch
from peak import MODELS, FakeTensorMode, MemTracker, load
from torch.nn import functional as F


def whole(model, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def in_eighths(model, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        return model(x, y)


script = load("ddp_run.py")
for loss in (whole, in_eighths):
    with FakeTensorMode(), torch.no_grad():
        model = script.GPT(script.GPTConfig(**MODELS["gpt2"]))
        weights = 4 * sum(p.numel() for p in model.parameters())
        ids = torch.zeros(64, 1024, dtype=torch.int64)
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            loss(model, ids, ids)
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    print(f"{loss.__name__}: {(peak['Total'] - weights) / 1e9:.2f} GB")
