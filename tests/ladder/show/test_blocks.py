"""blocks.py: the generated parts of README.md."""

from climbs import PUBLISHED

from ladder.measure.rows import read_climb
from ladder.show import blocks


def test_the_table_of_rungs_says_what_the_logs_say():
    """In any order of the climb: a gain is over the rung before."""
    rows = read_climb(PUBLISHED)[1]
    rows = [rows[i] for i in (0, 3, 1, 2, *range(4, len(rows)))]
    lines = blocks.rungs_table([("logs/x", {}, rows)]).partition("\n\n")[0].splitlines()
    _, _, *cells = [line.strip("| ").split(" | ") for line in lines]
    assert [row[-1] for row in cells[:2]] == ["204 tok/s", "+10.1 % (+3.3 … +17.4)"]
    assert cells[2][3:] == ["333 ms, +200 %", "230 ms", "455 ms", "−0.5 % (−8.3 … +8.1)"]
    assert [row[3] for row in cells[10:13]] == ["90 ms, +3 %", "CPU only", "CPU only"]
    assert [row[4] for row in cells[6:8]] == ["63 ms", "as 06"]
