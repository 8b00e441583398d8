"""work.py, work.json and rates.py: the counts behind the roofline, and whose rates it takes."""

import pytest
from climbs import a_climb

from ladder.cards import find_gpu
from ladder.measure.rates import CARDS, rates_of, source_of
from ladder.measure.work import roofline_ms, roofline_of, work


def test_flops_are_those_of_the_formula():
    """Six per parameter of a matmul and token; twelve per pair of query, key and channel."""
    tokens, layers, C = 16 * 1024, 12, 768
    step = work(16)["baseline"]
    assert step.flops["linear"] == 6 * (12 * layers * C**2 + 50257 * C) * tokens
    assert step.flops["attention"] == 12 * layers * C * 1024 * tokens
    flash = work(16)["06_flash_attention"].flops["attention"]
    assert flash == step.flops["attention"] / 2 * 7 / 6  # half of it, and QK^T once again
    cpu = {stem: step.flops["attention"] for stem, step in work(4, "cpu").items()}
    assert cpu["baseline"] == step.flops["attention"] / 4 / 16  # T² is a 16th
    assert cpu["06_flash_attention"] == cpu["baseline"] * 7 / 6  # masked afterwards


def test_the_roofline_of_the_baseline_by_hand():
    """19.18 TFLOP/s and 2039 GB/s: all matmuls are bound by the rate, the rest by the bandwidth."""
    step = work(16)["baseline"]
    parts = roofline_ms(step, rates_of(find_gpu("NVIDIA A100-SXM4-80GB")))
    optimizer = 163.04e6 * 80  # 20 words of 4 bytes each
    matmuls = [12144 / 19.18, 1855 / 19.18]  # GFLOP
    by_hand = [*matmuls, step.bytes["other"] / 2039e6, optimizer / 2039e6]
    assert parts == pytest.approx(by_hand, rel=1e-3)


GPU = {"peak_flops": [1e14]}
CPU = {"peak_flops": [1e12], "fp32_flops": [2e11], "copy_bytes_per_s": [2e10]}
SETTINGS = {"device": "AMD EPYC (2 threads)", "model": "gpt2", "B": 4, "T": 256}
T4 = {"device": "Tesla T4", "T": 1024}


@pytest.mark.parametrize(
    ("rates", "run", "device", "flops", "bandwidth"),
    [
        (CPU, {}, "cpu", 2e11, 2e10),
        (GPU, T4, "cuda", 4.35e12, 320e9),  # FP32's rate: it has no such units
    ],
)
def test_the_roofline_of_a_step_in_a_climb(rates, run, device, flops, bandwidth):
    step = work(4, device)["02_tf32"]
    found = roofline_of("02_tf32", SETTINGS | run, a_climb(rates=rates))
    assert found[0] == pytest.approx(step.flops["linear"] / flops * 1e3)
    assert found[2] == pytest.approx(step.bytes["other"] / bandwidth * 1e3)


# ------------------------------------------------------------------ rates.py


def test_every_card_has_rates():
    for gpu in CARDS.values():
        rates = rates_of(gpu)
        assert rates["fp32"] <= rates["tf32"] < 1.1 * rates["half"], gpu  # a P100: 1.08


@pytest.mark.parametrize(
    ("name", "expected", "source"),
    [
        ("A100 SXM 80GB", [19.18, 264.53 / 2, 264.53], "its owner, tf32 as half of bfloat16"),
        (
            "RTX 4070",
            # The middle two of six shares: a 4090's and a 4090 D's; a 4070 SUPER's and a 4060's;
            # a 4090 D's and a 4060's.
            [
                29.1 * (54.67 / 82.6 + 50.07 / 73.5) / 2,
                29.1 * (36.53 / 35.5 + 15.6 / 15.1) / 2,
                58.3 * (148.91 / 147.1 + 31.21 / 30.2) / 2,
            ],
            "estimated from the RTX 40 cards that owners measured",
        ),
        # No TF32 units; its FP32 by the share of an MI210's sheet.
        (
            "MI300X",
            [163.4 * 33.68 / 45.3, 163.4 * 33.68 / 45.3, 668.4],
            "fp32 estimated from CDNA cards",
        ),
    ],
)
def test_rates_are_medians_of_owners_or_a_share_of_the_data_sheet(name, expected, source):
    rates = rates_of(CARDS[name])
    assert [rates[unit] for unit in ("fp32", "tf32", "half")] == pytest.approx(expected)
    assert source_of(CARDS[name]).endswith(source)
