"""dev/count_work.py: work.json is what it counts."""

import pytest

from dev import count_work
from dev.regenerate import fingerprint
from ladder.measure.scripts import rungs_for
from ladder.measure.work import counted

RUNGS = {path.stem: path for path in rungs_for("cpu")}


def test_work_json_has_the_counts_of_the_code_that_stands_here():
    """Else: python -m dev.regenerate."""
    for device, counts in counted().items():
        assert [*counts] == [path.stem for path in rungs_for(device)]
        for stem, found in counts.items():
            assert found["code"] == fingerprint(RUNGS[stem]), (device, stem)


@pytest.mark.slow
def test_a_recount_gives_what_work_json_has():
    """But for a kernel of 544, by the version of PyTorch."""
    stem = "10_fused_adamw"
    for kind, found in count_work.count(RUNGS[stem]).items():
        known = counted()["cuda"][stem][kind]
        assert found == (known if kind == "unit" else pytest.approx(known, rel=0.002)), kind
