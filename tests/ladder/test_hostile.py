"""Files of strangers: a climb that somebody sent is text, and nothing in it acts."""

import json
import re

import pytest
from climbs import PUBLISHED, as_it_ran

from ladder.commands.main import main


@pytest.fixture
def sent(tmp_path):
    """The folder of a climb that somebody sent."""
    return as_it_ran(PUBLISHED, tmp_path / "sent")


@pytest.fixture
def told(sent, tmp_path, capsys):
    """told(): the line with which `report` refuses that folder."""

    def refuse():
        out = tmp_path / "page.html"
        assert main(["report", str(sent), "--out", str(out)]) == 2 and not out.exists()
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return refuse


@pytest.mark.parametrize(
    "changed",
    [
        {"more": 1},
        {"started": "../../2026-12-24 10:00"},
        {"rates": {"peak_flops": ["fast"]}},
    ],
)
def test_what_is_no_climb_of_this_ladder_is_told_in_a_line(sent, told, changed):
    path = sent / "climb.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert told().startswith(f"error {path} is not a climb of this ladder: ")
    path.write_text("{")
    assert told().startswith(f"error {path} is not a climb of this ladder: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r" B=4 ", " B=many "),
        (r" steps=\d+ ", " steps=3.5 "),
        (r"^step +3/.*\n", ""),
        (r"\| loss \S+ \|", "| loss nan |"),
        (r"^RESULT .*", ""),
        (r"\A", "what\n"),
    ],
)
def test_what_is_no_log_of_this_ladder_is_told_in_a_line(sent, told, old, new):
    path = sent / "baseline.r1.log"
    text, count = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
    assert count
    path.write_text(text)
    assert str(path) in told()
