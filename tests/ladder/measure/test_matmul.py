"""matmul.py: the rates of a device."""

from ladder.checkout import ROOT
from ladder.measure.process import large_matmul


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = large_matmul(["--device=cpu"], ROOT)
    assert set(measured) == {"peak_flops", "fp32_flops", "copy_bytes_per_s"}
    assert min(measured.values()) > 1e6
