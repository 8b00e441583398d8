"""reported.py: what others measured, beside the roofline."""

import pytest

from ladder.show.reported import gain_text, share_of


def test_a_reported_step_is_its_batches_and_one_optimizer():
    """On an A100 at B=32: TFLOP that a batch multiplies, GB between that, and of AdamW."""
    row = {"gpu": "A100 SXM 80GB", "B": 32, "grad_accum_steps": 16, "ms_a_step": 2571.18}
    by_hand = (16 * (26.459 / 264.53 + 61.306 / 2039) + 4.979 / 2039) / 2.57118
    assert share_of(row) == pytest.approx(by_hand, 1e-4)


def test_a_gain_is_in_times_from_2_up_and_in_per_cent_below():
    gains = [gain_text(before, 10) for before in (37, 20, 19.9, 10.04, 10, 9.8)]
    assert gains == ["3.7 times", "2.0 times", "+99 %", "+0.4 %", "no change", "−2 %"]
