"""gather.py: the scripts of a climb are shown as they were measured."""

from climbs import NAMES, climb_of

from ladder.show.gather import gather


def test_where_a_script_comes_from(tmp_path):
    times = {"baseline": 20, "01_weight_tying": 19, "lost": 17}
    folder = climb_of(tmp_path, times, commit="0123456789ab")
    (folder / "code" / "speedups").mkdir(parents=True)
    (folder / "code" / NAMES["01_weight_tying"]).write_text("a = 1\n")
    (folder / "baseline.py").write_text("a = 2\n")
    baseline, tying, lost = gather(folder).rungs
    assert baseline.source == tying.source == "kept with its logs"
    assert tying.diff[1:] == ["-a = 2", "+a = 1"]
    assert lost.path is lost.diff is None


def test_a_rung_says_what_it_is_compared_with_where_that_is_not_the_row_above(tmp_path):
    times = {"08_adamw_clipping": 20, "constant_6e4": 20, "09_cosine_lr": 19}
    rungs = gather(climb_of(tmp_path, times)).rungs
    assert [rung.over for rung in rungs] == ["", "", " (over 08 AdamW and clipping)"]
