"""rates.py: whose rates a calculation takes."""

import pytest

from ladder.measure.rates import CARDS, rates_of, source_of


def test_every_card_has_rates():
    for gpu in CARDS.values():
        rates = rates_of(gpu)
        assert rates["fp32"] <= rates["tf32"] < 1.05 * rates["half"], gpu


@pytest.mark.parametrize(
    ("name", "expected", "source"),
    [
        ("RTX 4090", [54.67, 85.65, 164.81], "measured by 9 owners"),
        ("A100 SXM 80GB", [19.18, 264.53 / 2, 264.53], "its owner, tf32 as half of bfloat16"),
        ("T4", [4.35, 4.35, 41.93], "measured by 3 owners"),  # it has no TF32 units
        # The middle of five shares: a 4090's, a 4090's, a 4060's.
        (
            "RTX 4070",
            [29.1 * 54.67 / 82.6, 29.1 * 85.65 / 82.6, 58.3 * 31.21 / 30.2],
            "estimated from the RTX 40 cards that owners measured",
        ),
    ],
)
def test_rates_are_medians_of_owners_or_a_share_of_the_data_sheet(name, expected, source):
    rates = rates_of(CARDS[name])
    assert [rates[unit] for unit in ("fp32", "tf32", "half")] == pytest.approx(expected)
    assert source_of(CARDS[name]).endswith(source)
