"""dev/regenerate.py: work.json is of the code that stands here."""

from dev.regenerate import fingerprint
from ladder.measure.scripts import rungs_for
from ladder.measure.work import counted

RUNGS = {path.stem: path for path in rungs_for("cpu")}


def test_each_count_has_the_hash_of_the_code_that_it_is_of():
    """Else: python -m dev.regenerate."""
    for device, counts in counted().items():
        assert [*counts] == [path.stem for path in rungs_for(device)]
        for stem, found in counts.items():
            assert found["code"] == fingerprint(RUNGS[stem]), (device, stem)
