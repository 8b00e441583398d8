"""matmul.py: the rates of a device."""

from ladder.files import ROOT
from ladder.measure import rounds


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = rounds.large_matmul(["--device=cpu"], ROOT)
    assert set(measured["rates"]) == {"peak_flops", "fp32_flops", "copy_bytes_per_s"}
    assert min(measured["rates"].values()) > 1e6
