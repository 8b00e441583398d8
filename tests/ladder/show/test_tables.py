"""tables.py: what stands in a cell and below a table."""

import numpy as np
from climbs import a_climb, as_row, climb_of

from ladder.measure.rows import Row, read_climb
from ladder.measure.stats import gain_of
from ladder.show.tables import columns, footnotes
from ladder.show.words import gain


def test_a_gain_of_few_rounds_has_their_number_and_no_interval():
    assert gain(gain_of(np.log([1.1, 1.2]))) == "+14.9 % (2 rounds)"
    assert gain(gain_of(np.log([0.9]))) == "−10.0 % (1 round)"
    assert gain(gain_of(np.log([0.9997]))) == "no change (1 round)"


def test_a_column_is_shown_if_a_row_has_a_number_for_it(tmp_path):
    """And of a climb that failed, why it did."""
    failed = climb_of(tmp_path / "failed", {"baseline": None, "01_weight_tying": None})
    (failed / "baseline.r1.failed").write_text("killed")
    alone = climb_of(tmp_path / "alone", {"baseline": 20})
    shown = []
    for folder in (failed, alone):
        shown.append([column.name for column in columns(*read_climb(folder))])
    assert shown[0] == ["rung", "ms"]
    assert "gain" not in shown[1] and {"rate", "mfu", "final_loss"} <= {*shown[1]}


def test_below_a_table_stands_what_failed_was_slow_or_not_as_declared():
    rows = [as_row([[1000], [1000], [3000]], "baseline"), as_row([[1000]] * 2, "05_torch_compile")]
    for log in rows[1].logs.values():
        log.run["script"] = "speedups/05_torch_compile.py"
        log.effective = {"compiled": "no"}
    rows[1].failures[3] = "killed"
    rows += [Row("none", {}, {1: "no log at all"})]
    for row in rows:
        row.mfu = 0.5
    rows[0].log.notes = ["throttled 2 times"]
    failed, none, throttled, slow, eager = footnotes(a_climb(), rows)
    assert throttled == "Round 1 of 00 baseline was throttled 2 times. It is kept."
    assert failed == "Round 3 of 05 torch.compile failed: killed"
    assert none == "Round 1 of none failed: no log at all"
    assert eager.startswith("05 torch.compile ran compiled=no, not yes")
    assert slow.startswith("Round 3 of 00 baseline took 3000.0 ms a step, more than twice")


def test_a_busy_machine_and_an_mfu_that_cannot_be_are_told_below_the_table(tmp_path):
    times = {"baseline": 20, "01_weight_tying": 0.01}
    busy = dict(load_during=1.2, cores=2)
    during, mfu = footnotes(*read_climb(climb_of(tmp_path, times, **busy)))
    assert during.startswith("Other programs took up to 1.2 of 2 cores during a run")
    assert mfu.startswith("MFU above 100 %: ")


def test_a_gain_over_another_script_than_its_own_base_is_named(tmp_path):
    """`ladder climb 0 1 4`: 04 has the gain of 03, too."""
    times = {"baseline": 20, "01_weight_tying": 18, "04_residual_scaling": 9, "mine": 9}
    (note,) = footnotes(*read_climb(climb_of(tmp_path, times)))
    assert note == (
        "04 residual scaling is compared with 01 weight tying, not with 03 bf16 autocast, which it "
        "is built on."
    )
