"""blocks.py: the generated parts of README.md."""

from ladder.files import ROOT
from ladder.measure.rows import read_climb
from ladder.show import blocks

CLIMB = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb-3"  # 13 rungs, three rounds


def test_the_table_of_rungs_says_what_the_logs_say():
    """In any order of the climb: a gain is over the rung before."""
    rows = read_climb(CLIMB)[1]
    rows = [rows[i] for i in (0, 3, 1, 2, *range(4, len(rows)))]
    lines = blocks.rungs_table([("logs/x", {}, rows)]).partition("\n\n")[0].splitlines()
    head, _, *cells = [line.strip("| ").split(" | ") for line in lines]
    assert head[3] == "*reported*: one A100 80GB, B=16, T=1024"
    assert head[4:6] == ["*calculated*: A100 80GB", "*calculated*: RTX 4090"]
    assert cells[2] == [
        "[02 TF32](speedups/02_tf32.py)", "FP32 matmuls may round their operands to TF32",
        "FP32 arithmetic outside tensor cores", "333 ms, +200 %", "230 ms", "455 ms",
        "−0.5 % (−8.3 … +8.1)",
    ]  # fmt: skip
    assert [row[-1] for row in cells[:2]] == ["204 tok/s", "+10.1 % (+3.3 … +17.4)"]
    assert [row[3] for row in cells[10:13]] == ["90 ms, +3 %", "CPU only", "CPU only"]
    assert [row[4] for row in cells[6:8]] == ["63 ms", "as 06"]
