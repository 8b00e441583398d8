"""effective.py: a rung that ran something else than it declares is told."""

import pytest
from models import expected_on_cuda

from ladder.log import Log
from ladder.measure.effective import differences
from ladder.measure.scripts import relative_name, rungs

H100 = "NVIDIA H100 80GB HBM3"


def ran(number, device=H100, autocast_off=False, **other) -> list[str]:
    """The differences of a rung that ran as on an H100, but for `other`."""
    effective = expected_on_cuda(number) | {"matmul": "tf32" if number >= 2 else "fp32"}
    if effective["attention"] == "fused":
        effective["attention"] = "cudnn"
    run = {"script": relative_name(rungs()[number]), "device": device}
    return differences([Log(run=run, effective=effective | other, autocast_off=autocast_off)])


def test_all_rungs_on_an_h100_run_what_they_declare():
    for number in range(11):
        assert ran(number) == []


def test_what_a_rung_ran_otherwise_is_told_of_it_and_those_after_it():
    (told,) = ran(1, matmul="tf32")
    assert told.startswith("matmul=tf32, not fp32")
    for number in (5, 10):
        (told,) = ran(number, compiled="partly")
        assert told.startswith("compiled=partly, not yes")


@pytest.mark.parametrize(
    ("number", "device", "autocast_off", "other"),
    [
        (3, "Tesla T4", False, {"matmul": "fp32", "autocast": "float16"}),
        (3, "AMD EPYC (2 threads)", True, {"matmul": "fp32", "autocast": "off"}),
        (6, H100, False, {"attention": "unknown"}),  # a profiler that tells nothing
    ],
)
def test_what_a_device_lacks_is_no_difference(number, device, autocast_off, other):
    assert ran(number, device, autocast_off, **other) == []
