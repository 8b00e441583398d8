"""rows.py: from the logs of a climb to rows."""

import pytest
from climbs import a_climb, climb_of

from ladder.errors import UsageError
from ladder.log import Log
from ladder.measure import rows as results
from ladder.measure.rows import Row, base_row, read_climb


def test_logs_of_two_commits_make_a_table_only_if_climb_json_names_both(tmp_path):
    climb_of(tmp_path / "all", {"baseline": 1, "02_tf32": 1}, commit="aaa", joined=["aaa", "bbb"])
    climb_of(tmp_path / "one", {"baseline": 1, "02_tf32": 1}, commit="aaa")
    for folder in tmp_path.iterdir():
        path = folder / "02_tf32.r1.log"
        path.write_text(path.read_text().replace("commit=aaa", "commit=bbb"))
    read_climb(tmp_path / "all")
    with pytest.raises(UsageError, match=r"its logs differ in commit \(aaa, bbb\)"):
        read_climb(tmp_path / "one")


def test_the_peak_behind_mfu_is_the_data_sheet_s_or_the_faster_matmul_s():
    """A CPU without bfloat16 units multiplies FP32 faster: else the baseline had 138 % MFU."""
    log = Log(mfu={"peak_flops": "unknown", "flops_per_token": 1000})
    rates = {"peak_flops": [1], "fp32_flops": [1.4e11], "copy_bytes_per_s": [1e10]}
    for peak, limit in ((4e10, 1.4e8), (4e11, 4e8)):
        climb = a_climb(rates=rates | {"peak_flops": [peak]})
        assert results.limit_tok_per_s(climb, log) == limit
    log.mfu["peak_flops"] = "9.89e+14"
    assert results.limit_tok_per_s(climb, log) == 9.89e11


def test_a_gain_is_over_the_script_that_a_rung_is_built_on():
    """The ladder forks after rung 10: 31 is built on it. A script from outside has no such."""
    scripts = ("10_fused_adamw", "11_keep_memory", "12_causal_blocks", "31_chunked_loss", "my_idea")
    rows = [Row(stem, {}) for stem in scripts]
    bases = [base_row(row, rows[:index]) for index, row in enumerate(rows[1:], 1)]
    assert bases == [rows[0], rows[1], rows[0], rows[3]]
    assert base_row(rows[3], rows[2:3]) is rows[2]  # 10 is not in the climb: the row above
