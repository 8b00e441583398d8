"""gather.py: the scripts of a climb are shown as they were measured."""

import pytest
from climbs import HERE, LOGS, NAMES, climb_of

from ladder.files import git
from ladder.show.gather import gather


@pytest.mark.skipif(
    git("cat-file", "-e", "d2d72edfc0b7^{commit}").returncode != 0,
    reason="this checkout lacks the commit of the published climb",
)
def test_diffs_are_of_the_scripts_as_measured():
    rung = gather(LOGS / f"{HERE}-climb")["rungs"][5]
    assert rung["source"] == "at commit d2d72edfc0b7" and "Numerics: rounding" in rung["doc"]
    (line,) = (line for line in rung["diff"] if line[0] in "+-")
    assert line.startswith("+        model = torch.compile(model)")


def test_where_a_script_comes_from(tmp_path):
    times = {"baseline": 20, "01_weight_tying": 19, "lost": 17}
    folder = climb_of(tmp_path, times, commit="0123456789ab")
    (folder / "code" / "speedups").mkdir(parents=True)
    (folder / "code" / NAMES["01_weight_tying"]).write_text("a = 1\n")
    (folder / "baseline.py").write_text("a = 2\n")
    baseline, tying, lost = gather(folder)["rungs"]
    assert baseline["source"] == tying["source"] == "kept with its logs"
    assert tying["diff"][1:] == ["-a = 2", "+a = 1"]
    assert lost["path"] is lost["diff"] is None
