"""dev/count_work.py: work.json is what it counts."""

import pytest
from helpers import load

from ladder.files import ROOT
from ladder.measure.scripts import all_scripts
from ladder.measure.work import counted

RUNGS = {path.stem: path for path in all_scripts()}


@pytest.fixture(scope="module")
def count_work():
    return load(ROOT / "dev" / "count_work.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "stem"),
    [
        ("cuda", "baseline"),
        ("cuda", "03_bf16_autocast"),
        ("cuda", "10_fused_adamw"),
        ("cpu", "12_causal_blocks"),
    ],
)
def test_work_json_is_what_a_recount_gives(device, stem, count_work):
    """On torch 2.9 and 2.13 to the last byte; 2.15 fuses one small operator less."""
    known, again = counted()[device][stem], count_work.count(RUNGS[stem], device)
    assert again.keys() == known.keys()
    for kind, numbers in known.items():
        exact = kind not in ("other_bytes", "kernels")
        assert again[kind] == (numbers if exact else pytest.approx(numbers, rel=0.002)), kind
