"""scripts.py: which script goes on from which."""

from helpers import rung

from ladder.measure.scripts import all_scripts, before, candidate_scripts, cpu_only


def test_the_ladder_forks_after_rung_10():
    for number in range(1, 13):
        assert before(rung(number)) == rung(number - 1)
    common = [path for path in all_scripts() if not cpu_only(path)]
    assert before(candidate_scripts()[0]) == common[-1]
    assert before(rung(0)) is None
