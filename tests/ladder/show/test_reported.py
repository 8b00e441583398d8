"""reported.py: what others measured, beside the roofline."""

import pytest

from ladder.machine import find_gpu
from ladder.measure.rates import rates_of
from ladder.show.reported import roofline_fraction


def test_a_reported_step_is_its_batches_and_one_optimizer():
    """On an A100 at B=32: TFLOP that a batch multiplies, GB between that, and of AdamW."""
    row = {"B": 32, "grad_accum_steps": 16, "ms_a_step": 2571.18}
    by_hand = (16 * (26.459 / 264.53 + 61.306 / 2039) + 4.979 / 2039) / 2.57118
    fraction = roofline_fraction(row, rates_of(find_gpu("NVIDIA A100-SXM4-80GB")))
    assert fraction == pytest.approx(by_hand, 1e-4)
