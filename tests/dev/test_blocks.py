"""blocks.py: the generated parts of README.md."""

import blocks
from climbs import LOGS, PUBLISHED
from site_page import site_sections

from ladder.files import ROOT
from ladder.measure.rows import read_climb
from ladder.show.page import page


def test_the_table_of_rungs_says_what_the_logs_say():
    """In any order of the climb: a gain is over the rung before."""
    climb, rows = read_climb(PUBLISHED)
    rows = [rows[i] for i in (0, 3, 1, 2, *range(4, len(rows)))]
    table, _, below = blocks.rungs_table([("logs/x", climb, rows)]).partition("\n\n")
    lines = table.splitlines()
    _, _, *cells = [line.strip("| ").split(" | ") for line in lines]
    assert [row[-1] for row in cells[:2]] == ["204 tok/s", "+10.1 % (+3.3 … +17.4)"]
    assert cells[2][3:] == ["speed", "333 ms, +200 %", "230 ms", "455 ms", "−0.5 % (−8.3 … +8.1)"]
    assert len(cells) == 11 and cells[10][4] == "90 ms, +3 %"
    on_cpu = "[11 keep memory](cpu/11_keep_memory.py) +18.4 % (+11.6 … +25.5)"
    assert on_cpu in below.partition("\n")[0]
    assert [row[5] for row in cells[6:8]] == ["63 ms", "as 06"]


def test_readme_names_a_disturbed_run():
    climb, rows = read_climb(LOGS / "2026-11-23-intel-xeon-amx-2-threads-climb")
    table = blocks.rungs_table([("logs/x", climb, rows)])
    assert "(2 threads), B=4, T=256: Round 1 of 03 bf16 autocast was disturbed: " in table


def test_the_page_is_what_is_made_of_the_repository():
    """Else: python dev/regenerate.py."""
    made = page(site_sections(), made="")
    assert (ROOT / "docs" / "index.html").read_text("utf-8") == made
