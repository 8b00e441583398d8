"""What only a CUDA GPU can show of the scripts. Elsewhere these are reported as skipped."""

import pytest
import torch
from helpers import SCRIPTS, random_batch, relative_error
from models import SAME_MODEL, enlarged, losses_of

from ladder.machine import half_precision
from ladder.measure.effective import differences
from ladder.measure.scripts import base_of, number_of, rungs_for

pytestmark = pytest.mark.cuda

CUDA = torch.device("cuda")
RUNGS = [number_of(path) for path in rungs_for("cpu")]


@pytest.mark.parametrize("number", SCRIPTS)
def test_a_script_trains_as_it_declares(number, cuda_log):
    log = cuda_log(number)
    assert differences([log]) == [] and "unknown" not in log.effective.values()
    assert 0 < log.result["peak_bytes"] < torch.cuda.get_device_properties(0).total_memory
    losses = losses_of(log)
    assert losses[-1] < losses[0]
    if number in SAME_MODEL:
        before = cuda_log(number_of(base_of(SCRIPTS[number])))
        assert losses == pytest.approx(losses_of(before), abs=0.02)


@pytest.mark.parametrize("number", RUNGS)
def test_logits_are_those_of_the_baseline_on_a_cpu(number):
    x, _ = random_batch(T=128)
    model = enlarged(number).to(CUDA)
    exact = enlarged(0)(x)
    torch.set_float32_matmul_precision("high" if number >= 2 else "highest")
    model = torch.compile(model) if number >= 5 else model
    with torch.autocast(CUDA.type, half_precision(CUDA), enabled=number >= 3):
        logits = model(x.to(CUDA))
    rounding = 2e-2  # of bfloat16
    if number == 2:
        rounding = 2e-3  # of TF32
    elif number < 2:
        rounding = 1e-5  # of FP32
    assert relative_error(logits.cpu(), exact) < rounding
