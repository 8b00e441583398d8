"""What the scripts of memory/ are for: models that train on cards that are too small otherwise."""

import pytest
import torch
from helpers import load, rung
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from ladder.cli import MODELS


def peak_gb(script, size: str, B: int, T: int = 1024) -> float:
    """The most that tensors take in two training steps, counted on fake tensors: weights, gradients
    and moments too."""
    with FakeTensorMode():
        model = script.GPT(script.GPTConfig(**MODELS[size]))
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        ids = torch.zeros(B, T, dtype=torch.int64)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):  # the first one makes the moments
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    _, loss = model(ids, ids)
                loss.backward()
                optimizer.step()
                tracker.reset_mod_stats()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return peak["Total"] / 1e9


@pytest.mark.slow
@pytest.mark.parametrize(("size", "B", "most"), [("gpt2-medium", 8, 12), ("gpt2-large", 8, 24)])
def test_a_model_fits_that_did_not(size, B, most):
    assert peak_gb(load(rung(32)), size, B) < most < peak_gb(load(rung(10)), size, B)
