"""cards.py: rates of GPUs."""

import re

import pytest

from ladder.cards import DATA_SHEETS, find_gpu


def test_a_calculated_rate_follows_from_its_source():
    for gpu in DATA_SHEETS.values():
        if gpu.source.startswith("calculated"):
            sm, flop, ghz = map(float, re.findall(r"[\d.]+", gpu.source))
            assert sm * flop * ghz / 1e3 == pytest.approx(gpu.half, abs=0.051), gpu


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090 D"),
        ("NVIDIA GeForce RTX 5090 D", None),  # another chip
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),  # a part of one
        ("NVIDIA A10-4Q", None),  # a part of one, for a virtual machine
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_gives(driver, name):
    gpu = find_gpu(driver)
    assert (gpu and gpu.name) == name
