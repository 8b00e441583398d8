"""What only a CUDA GPU can show of the rungs. Elsewhere these are reported as skipped."""

import pytest
import torch
from helpers import random_batch, relative_error
from models import enlarged, expected_on_cuda, one_fused

from ladder.machine import half_precision
from ladder.measure.scripts import number_of, rungs_for

pytestmark = pytest.mark.cuda

CUDA = torch.device("cuda")
RUNGS = [number_of(path) for path in rungs_for("cpu")]


@pytest.mark.parametrize("number", RUNGS)
def test_effective_line_on_cuda(number, cuda_log):
    log = cuda_log(number)
    has_tf32 = torch.cuda.get_device_capability() >= (8, 0)
    half = str(half_precision(CUDA)).removeprefix("torch.")
    found = {**log.effective, "attention": one_fused(log.effective["attention"])}
    assert found.pop("matmul") == ("tf32" if number >= 2 and has_tf32 else "fp32")
    found.pop("loss_scale", None)
    assert found == {**expected_on_cuda(number), "autocast": half if number >= 3 else "off"}
    assert 0 < log.result["peak_bytes"] < torch.cuda.get_device_properties(0).total_memory


@pytest.mark.parametrize("number", RUNGS)
def test_logits_are_those_of_the_baseline_on_a_cpu(number):
    x, y = random_batch(T=128)
    model = enlarged(number).to(CUDA)
    exact, _ = enlarged(0)(x, y)
    torch.set_float32_matmul_precision("high" if number >= 2 else "highest")
    model = torch.compile(model) if number >= 5 else model
    with torch.autocast(CUDA.type, half_precision(CUDA), enabled=number >= 3):
        logits, _ = model(x.to(CUDA), y.to(CUDA))
    rounding = 2e-2  # of bfloat16
    if number == 2:
        rounding = 2e-3  # of TF32
    elif number < 2:
        rounding = 1e-5  # of FP32
    assert relative_error(logits.cpu(), exact) < rounding
