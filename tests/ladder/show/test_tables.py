"""tables.py: what stands in a cell and below a table."""

import io
import os

import numpy as np
import pytest
from climbs import HERE, LOGS, a_climb, as_row, change, climb_of
from rich.console import Console

from ladder.measure.rows import read_climb
from ladder.measure.stats import gain_of
from ladder.show.tables import footnotes, for_terminal, percent, titles, warnings


def test_scripts_of_all_branches_have_titles():
    names = titles()
    assert names["12_causal_blocks"] == "12 causal blocks"
    assert names["without_25_muon"] == "without 25 Muon"


def test_a_gain_of_few_rounds_has_their_number_and_no_interval():
    assert percent(gain_of(np.log([1.1, 1.2]))) == "+14.9 % (2 rounds)"
    assert percent(gain_of(np.log([0.9]))) == "−10.0 % (1 round)"
    assert percent(gain_of(np.log([0.9997]))) == "no change (1 round)"


def test_below_a_table_stands_what_failed_was_slow_or_not_as_declared():
    rows = [as_row([[1000], [1000], [3000]], "baseline"), as_row([[1000]] * 2, "05_torch_compile")]
    for log in rows[1].logs.values():
        log.run["script"] = "speedups/05_torch_compile.py"
        log.effective = {"compiled": "no"}
    climb = a_climb(failures={"05_torch_compile.r3": "killed", "none.r1": "no log at all"})
    rows[0].roofline = (2.0, 1.0)
    rows[0].ms = 2.9
    failed, slow, eager, above = footnotes(climb, rows)
    assert above.startswith("Above 100 % of the roofline")
    assert failed.startswith("Round 3 of 05 torch.compile failed; ")
    assert eager.startswith("05 torch.compile ran compiled=no, not yes (is TORCH_COMPILE_DISABLE")
    assert slow.startswith("Round 3 of 00 baseline took 3000.0 ms a step, more than twice")


@pytest.mark.parametrize(("width", "missing"), [(200, ""), (80, "screen also: vs. first, MFU")])
def test_a_narrow_screen_names_the_columns_that_it_lacks(width, missing):
    console = Console(width=width, file=io.StringIO())
    console.print(for_terminal(*read_climb(LOGS / f"{HERE}-climb-3"), console))
    printed = console.file.getvalue()
    assert ("MFU" in printed.partition("00 baseline")[0]) == (not missing)
    assert ("On a wider screen" in printed) == bool(missing) and missing in printed


def test_a_peak_that_moved_is_named():
    peaks = {"peak_flops": [0.97e12, 1.2e12, 1e12]}
    (peak,) = warnings(a_climb(rates=peaks))
    assert peak.startswith("a large matmul ran at 0.97 TFLOP/s in one round and 1.2 in another")
    assert warnings(a_climb(rates={"peak_flops": [1e12, 1.05e12]})) == []


def test_a_busy_machine_and_an_mfu_that_cannot_be_are_told_below_the_table_and_on_the_page(
    tmp_path,
):
    times = {"baseline": 20, "01_weight_tying": 0.01}
    busy = dict(load_before=3.0 * os.cpu_count(), load_during=1.2, cores=2)
    folder = climb_of(tmp_path / "busy", times, **busy)
    climb, rows = read_climb(folder)
    before, during, mfu = footnotes(climb, rows)
    assert before.startswith("Before the climb: load ")
    assert during.startswith("Other programs took up to 1.2 of 2 cores during a run")
    assert mfu.startswith("MFU above 100 %: the matmul that is its peak was disturbed, or ")
    change(folder, load_before=0.2, load_during=0.5)
    assert footnotes(*read_climb(folder)) == [mfu]


def test_a_gain_over_another_script_than_its_own_base_is_named(tmp_path):
    """`ladder climb 0 1 4`: 04 has the gain of 03, too."""
    times = {"baseline": 20, "01_weight_tying": 18, "04_residual_scaling": 9, "mine": 9}
    (note,) = footnotes(*read_climb(climb_of(tmp_path, times)))
    assert note == (
        "04 residual scaling is compared with 01 weight tying, not with 03 bf16 autocast, which it "
        "goes on from."
    )
