"""tables.py: what stands in a cell and below a table."""

import numpy as np
from climbs import NAMES, climb_of

from ladder.measure.rows import read_climb
from ladder.measure.stats import gain_of
from ladder.show.console import screen
from ladder.show.tables import footnotes
from ladder.show.words import gain


def test_a_gain_of_few_rounds_has_their_number_and_no_interval():
    assert gain(gain_of(np.log([1.1, 1.2]))) == "+14.9 % (2 rounds)"
    assert gain(gain_of(np.log([0.9]))) == "−10.0 % (1 round)"
    assert gain(gain_of(np.log([0.9997]))) == "no change (1 round)"


def test_below_a_table_stands_what_failed_was_slow_or_not_as_declared(tmp_path):
    times = {"baseline": 20, "05_torch_compile": 18, "none": None}
    results = read_climb(climb_of(tmp_path, times, load_during=1.2, cores=2))
    baseline, compiled, none = results.rows
    baseline.logs[2].throttled = 2
    for step in baseline.logs[3].steps:
        step.dt_ms = 60
    for log in compiled.logs.values():
        log.run["script"] = NAMES["05_torch_compile"]
        log.effective = {"compiled": "no"}
    compiled.mfu = 1.5
    none.failures[3] = "killed"
    failed, throttled, slow, eager, busy, mfu = footnotes(results)[:6]
    assert failed == "Round 3 of none failed: killed"
    assert throttled.startswith("Round 2 of 00 baseline was throttled 2 times: this run's share")
    assert slow.startswith("Round 3 of 00 baseline took 60.0 ms a step, more than twice")
    assert eager.startswith("05 torch.compile ran compiled=no, not yes")
    assert busy.startswith("Other programs took up to 1.2 of 2 cores during a run")
    assert mfu.startswith("MFU above 100 %: ")
    results.climb.cores = None  # a sandbox does not tell
    assert busy not in footnotes(results)


def test_a_peak_that_differs_by_a_fifth_over_a_climb_is_named(tmp_path):
    """By hand: 0.100 to 0.119 is 19 %; where FP32 was timed twice, 0.100 beside 0.150 is 50 %."""
    results = read_climb(climb_of(tmp_path, {"baseline": 20, "01_weight_tying": 18}))
    climb = results.climb
    climb.rates = {"peak_flops": [1e11, 1.19e11, 1.1e11], "fp32_flops": [1.5e11]}
    assert footnotes(results) == []
    climb.peak_dtype = "float32"
    (note,) = footnotes(results)
    assert note.startswith("A large float32 matmul ran at 0.1 to 0.15 TFLOP/s: MFU")


def test_a_gain_over_another_script_than_its_own_base_is_named(tmp_path):
    """`ladder climb 0 1 4`: 04 has the gain of 03, too."""
    times = {"baseline": 20, "01_weight_tying": 18, "04_residual_scaling": 9, "mine": 9}
    (note,) = footnotes(read_climb(climb_of(tmp_path, times)))
    assert note == (
        "04 residual scaling is compared with 01 weight tying, not with 03 bf16 autocast, which it "
        "is built on."
    )


def test_a_name_is_printed_as_it_is(capsys):
    """It may hold what rich reads as markup or as an emoji."""
    screen().say("/data:b:c [bold]")
    assert capsys.readouterr().out == "/data:b:c [bold]\n"
