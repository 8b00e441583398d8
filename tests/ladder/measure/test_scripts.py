"""scripts.py: which script goes on from which."""

from helpers import rung

from ladder.measure.scripts import DDP, FSDP, base_of, branch, rungs


def test_the_ladder_forks_after_rung_10():
    for number in range(1, 13):
        assert base_of(rung(number)) == rung(number - 1)
    assert base_of(branch("candidates")[0]) == rungs()[-1] == rung(10)
    assert base_of(rung(0)) is None
    assert base_of(DDP) == rung(10) and base_of(FSDP) == DDP
