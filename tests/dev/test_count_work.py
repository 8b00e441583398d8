"""dev/count_work.py: work.json is what it counts."""

import count_work
import pytest

from ladder.measure.scripts import rungs_for
from ladder.measure.work import counted

RUNGS = {path.stem: path for path in rungs_for("cpu")}


def test_work_json_has_the_counts_of_the_code_that_stands_here():
    """Else: python dev/regenerate.py."""
    for device, counts in counted().items():
        assert [*counts] == [path.stem for path in rungs_for(device)]
        for stem, found in counts.items():
            assert found["code"] == count_work.fingerprint(RUNGS[stem]), (device, stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "stem"), [("cuda", "10_fused_adamw"), ("cpu", "12_causal_blocks")]
)
def test_work_json_is_what_a_recount_gives(device, stem):
    """On torch 2.9 and 2.13 to the last byte; 2.15 fuses one small operator less."""
    known, again = dict(counted()[device][stem]), count_work.count(RUNGS[stem], device)
    del known["code"]
    assert again.keys() == known.keys()
    for kind, numbers in known.items():
        exact = kind not in ("other_bytes", "kernels")
        assert again[kind] == (numbers if exact else pytest.approx(numbers, rel=0.002)), kind
