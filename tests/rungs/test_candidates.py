"""Each candidate does what it says, as far as a CPU can tell; what only CUDA tells is marked so."""

import pytest
import torch
from helpers import load, random_batch, rung
from models import losses_of, one_fused, tiny

from ladder.measure.scripts import branch, number_of

NUMBERS = [number_of(path) for path in branch("candidates")]
B, T, V = 2, 48, 2048  # V is small, for speed


def check_13(module):
    model = tiny(module, vocab_size=V)
    x, y = random_batch(B, T, V)
    logits, none = model(x)
    assert logits.shape == (B, T, V) and none is None
    assert model(x, y)[0] is None


def check_14(module):
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


@pytest.mark.parametrize("number", NUMBERS)
def test_candidate_does_what_it_says(number):
    globals()[f"check_{number}"](load(rung(number)))


@pytest.mark.cuda
@pytest.mark.parametrize("number", NUMBERS)
def test_trains_on_cuda(number, cuda_log):
    before, log = cuda_log(10), cuda_log(number)
    assert losses_of(log) == pytest.approx(losses_of(before), abs=0.02)
    assert log.effective["compiled"] == "yes" and log.effective["optimizer"] == "fused"
    assert one_fused(log.effective["attention"]) == "fused"
