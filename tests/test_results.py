"""From logs to a table: the rule that tells a gain from noise, and what stands in a cell."""

import io
import os
import shutil

import numpy as np
import pytest
from conftest import ROOT
from rich.console import Console

from ladder.errors import BadInput
from ladder.log import Log
from ladder.measure import rounds
from ladder.measure import rows as results
from ladder.measure.rows import Row, gain, index_of_base, read_climb, step_times
from ladder.measure.stats import Gain, gain_of, holm
from ladder.show.tables import doubts, foot, lines, screen

LOGS = ROOT / "logs"
HERE = "2026-11-21-amd-epyc-2-threads"


def as_row(times, stem="synthetic") -> Row:
    """A row of runs whose steps took these times: (rounds, steps), seconds."""
    logs = {}
    for k, one in enumerate(times, 1):
        steps = [{"dt": dt} for dt in one]
        logs[k] = Log(run={"B": "4", "T": "256"}, steps=steps, result={"warmup_steps": 0})
    return Row(stem, logs)


@pytest.fixture(scope="module")
def identical():
    """identical(random, *size): log times of the steps of so many runs of one script.

    They vary as in the ten rounds of logs/…-rule-10-rounds: each run as one of those differs from
    the median of its script, each step as one of a single of those runs differs from its median.
    """
    runs = []
    steps = []
    for row in read_climb(LOGS / f"{HERE}-rule-10-rounds")[1]:
        times = np.log([step_times(log) for log in row.logs.values()])  # (rounds, steps)
        medians = np.median(times, axis=1)
        runs.append(medians - np.median(medians))
        steps.append(times - medians[:, None])
    runs = np.concatenate(runs)
    steps = np.concatenate(steps)

    def draw(random, *size):
        of = steps[random.integers(len(steps), size=size)]
        drawn = np.take_along_axis(of, random.integers(of.shape[-1], size=of.shape), axis=-1)
        return random.choice(runs, (*size, 1)) + drawn

    return draw


def test_a_gain_has_student_s_interval_and_p_value():
    """By hand: log ratios 1, 2 and 3 have the mean 2 and the standard error 1/√3; the tables have
    t = 4.302653 for two degrees of freedom. There p = 1 - t / √(2 + t²), of t = 2√3."""
    found = gain_of([1, 2, 3])
    half = 4.302653 / 3**0.5
    assert np.log([found.ratio, found.low, found.high]) == pytest.approx([2, 2 - half, 2 + half])
    assert found.p == pytest.approx(1 - (12 / 14) ** 0.5) and found.rounds == 3
    assert gain_of([1, 2]).low is None and gain_of([1, 2]).p is None


def test_holm_s_correction_is_over_the_whole_column():
    """With four p-values the bounds are 0.05/4, 0.05/3, 0.05/2 and 0.05, from the smallest on."""

    def significant(*values):
        gains = [value if value is None else Gain(1, 1, 1, 3, value) for value in values]
        holm(gains)
        return [gain and gain.significant for gain in gains]

    assert significant(0.005, 0.01, 0.03, 0.04) == [True, True, False, False]
    assert significant(0.04, 0.012, None, 0.016, 0.024) == [True, True, None, True, True]
    assert significant(0.04, 0.013, 0.016, 0.024) == [False] * 4  # the first one that fails ends it
    assert significant(0.04) == [True]
    without_interval = Gain(2, None, None, 2)
    holm([without_interval])
    assert not without_interval.significant


@pytest.mark.parametrize("rounds", [3, 6, 10])
def test_two_identical_scripts_differ_once_in_twenty(rounds, identical):
    times = np.exp(identical(np.random.default_rng(rounds), 1000, 2, rounds))
    pairs = [(as_row(a), as_row(b)) for a, b in times]
    assert 33 <= sum(gain(*pair).p < 0.05 for pair in pairs) <= 67  # 50: by 2.5 deviations


def test_a_cell_has_the_gain_and_its_interval_or_the_number_of_rounds():
    climb, rows = read_climb(LOGS / f"{HERE}-climb-3")
    rows[1].gain = Gain(1.101, 1.033, 1.174, 3, 0.01, True)
    rows[1].total = Gain(0.95, 0.9, 1.02, 3)
    rows[2].gain = rows[2].total = gain_of(np.log([1.1, 1.2]))
    rows[3].gain = gain_of(np.log([0.9]))
    rows[3].total = None
    assert lines(climb, rows, {"gain": "", "total": ""})[1:4] == [
        ["**+10.1 % (+3.3 … +17.4)**", "0.95× (0.90 … 1.02)"],
        ["+14.9 % (2 rounds)", "1.15× (2 rounds)"],
        ["−10.0 % (1 round)", "–"],
    ]
    assert gain(as_row([[1.0]] * 2), Row("failed", {})) is None


def test_a_step_of_several_batches_counts_all_its_tokens(tmp_path):
    """As ddp_run.py's: four times the tokens in the same time are four times the rate."""
    folder = shutil.copytree(LOGS / f"{HERE}-keep-memory", tmp_path / "climb")
    _, (_, before) = read_climb(folder)
    for path in folder.glob("11_keep_memory.r*.log"):
        path.write_text(path.read_text().replace(" T=256 ", " T=256 total_batch=4096 "))
    _, (_, after) = read_climb(folder)
    for name in ("tok_per_s", "mfu"):
        assert getattr(after, name) == pytest.approx(4 * getattr(before, name))
    assert after.gain.ratio == pytest.approx(4 * before.gain.ratio)


def test_a_log_that_is_cut_short_and_a_foreign_climb_json_are_refused_in_one_line(tmp_path):
    folder = shutil.copytree(LOGS / f"{HERE}-keep-memory", tmp_path / "climb")
    path = folder / "11_keep_memory.r2.log"
    path.write_text(path.read_text().partition("RESULT")[0])
    with pytest.raises(BadInput, match=r"11_keep_memory\.r2\.log is cut short"):
        read_climb(folder)
    (folder / "climb.json").write_text('{"kind": "fit"}')
    with pytest.raises(BadInput, match=r"climb\.json is not a climb\.json of this ladder: "):
        results.read_climb_json(folder)


def test_below_a_table_stands_what_failed_was_slow_or_not_compiled():
    rows = [as_row([[1], [1], [3]], "baseline"), as_row([[1]] * 2, "05_torch_compile")]
    for log in rows[1].logs.values():
        log.effective["compiled"] = "no"
    climb = {"failures": {"05_torch_compile.r3": "killed", "none.r1": "no log at all"}}
    rows[0].roofline = (2.0, 1.0)
    rows[0].ms = 2.9
    failed, slow, eager, above = foot(climb, rows)
    assert above.startswith("Above 100 % of the roofline")
    assert failed.startswith("Round 3 of 05 torch.compile failed; ")
    assert eager.startswith("Nothing was compiled in 05 torch.compile: is TORCH_COMPILE_DISABLE")
    assert slow.startswith("Round 3 of 00 baseline took 3000.0 ms a step, more than twice")


@pytest.mark.parametrize(("width", "missing"), [(200, ""), (80, "screen also: vs. first, MFU")])
def test_a_narrow_screen_names_the_columns_that_it_lacks(width, missing):
    console = Console(width=width, file=io.StringIO())
    console.print(screen(*read_climb(LOGS / f"{HERE}-climb-3"), console))
    printed = console.file.getvalue()
    assert ("MFU" in printed.partition("00 baseline")[0]) == (not missing)
    assert ("On a wider screen" in printed) == bool(missing) and missing in printed


def test_a_disturbed_run_is_named():
    """In round 1 of 03, six of 14 measured steps took 8 to 11 s, the others 2 to 3 s."""
    climb, rows = read_climb(LOGS / "2026-11-23-intel-xeon-amx-2-threads-climb")
    disturbed = {row.stem: [*row.disturbed_runs] for row in rows if row.disturbed_runs}
    assert disturbed == {"03_bf16_autocast": [1]}
    (line,) = foot(climb, rows)
    assert line.startswith("Round 1 of 03 bf16 autocast was disturbed: ")
    steps = [1.0] * 9
    assert as_row([[*steps, 9.0]]).disturbed_runs == {}  # one step is not yet a tenth of them
    assert [*as_row([[*steps, 9.0, 9.0]]).disturbed_runs] == [1]


def test_each_rate_is_the_median_of_its_rounds():
    climb = {}
    for flops, copied in ((1e12, 30), (2e12, 20), (3e12, 10)):
        rounds.add_rates(climb, {"peak_flops": flops, "copy_bytes_per_s": copied, "clocks": "1"})
    assert climb["peaks"] == [1e12, 2e12, 3e12] and climb["peak_flops"] == 2e12
    assert climb["copy_bytes_per_s"] == 20 and "fp32_flops" not in climb


def test_a_busy_machine_and_a_peak_that_moved_are_named():
    busy = {"clocks": {}, "load": 3.0 * os.cpu_count(), "peaks": [0.97e12, 1.2e12, 1e12]}
    load, peak = doubts(busy)
    assert load.startswith("load ")
    assert peak.startswith("a large matmul ran at 0.97 TFLOP/s in one round and 1.2 in another")
    assert doubts({"clocks": {}, "load": 0.2, "peaks": [1e12, 1.05e12]}) == []


def test_the_peak_behind_mfu_is_the_data_sheet_s_or_the_faster_matmul_s():
    """A CPU without bfloat16 units multiplies FP32 faster: else the baseline had 138 % MFU."""
    log = Log(mfu={"peak_flops": "unknown", "flops_per_token": "1000"})
    assert results.limit_tok_per_s({"peak_flops": 4e10, "fp32_flops": 1.4e11}, log) == 1.4e8
    assert results.limit_tok_per_s({"peak_flops": 4e11, "fp32_flops": 1.4e11}, log) == 4e8
    assert results.limit_tok_per_s({"peak_flops": None}, log) is None
    log.mfu["peak_flops"] = "9.89e+14"
    assert results.limit_tok_per_s({"peak_flops": 4e10}, log) == 9.89e11


def test_a_gain_is_over_the_script_that_a_rung_goes_on_from():
    """The ladder forks after rung 10: 13 goes on from there. A script from outside has no such."""
    scripts = ("10_fused_adamw", "11_keep_memory", "12_causal_blocks", "13_loss_only", "my_idea")
    rows = [Row(stem, {}) for stem in scripts]
    assert [index_of_base(rows, index) for index in range(1, 5)] == [0, 1, 0, 3]
    assert index_of_base(rows[2:], 1) == 0  # 10 is not in the climb: the row above
