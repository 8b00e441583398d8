"""Files of strangers: a climb that somebody sent is text, and nothing in it acts."""

import json
import re

import pytest
from climbs import PUBLISHED, as_it_ran, change

from dev import publish
from dev.blocks import BLOCK
from ladder.commands.main import main
from ladder.measure.rows import read_climb


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
        {"rounds": "many"},
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
        (r"^step +3/.*\n", ""),
        (r"\| loss \S+ \|", "| loss nan |"),
        (r"^RESULT .*", ""),
        (r'"status": "ok"', '"status": "stopped"'),
        (r"\A", "what\n"),
    ],
)
def test_what_is_no_log_of_this_ladder_is_told_in_a_line(sent, told, old, new):
    path = sent / "baseline.r1.log"
    text, count = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
    assert count
    path.write_text(text)
    assert str(path) in told()


def test_results_are_computed_from_the_steps(sent):
    """A RESULT that claims more changes no row."""
    _, before = read_climb(sent)
    for path in sent.glob("*.log"):
        text, count = re.subn('"(median_ms|warmup_steps)": [^,]+', r'"\1": 1', path.read_text())
        assert count == 2
        path.write_text(text)
    _, after = read_climb(sent)
    for old, new in zip(before, after, strict=True):
        assert (old.ms, old.tok_per_s, old.gain) == (new.ms, new.tok_per_s, new.gain)


def test_text_of_a_log_is_no_marker_in_the_run_log(sent):
    evil = "<!-- table logs/x --> <script>"
    change(sent, device=evil)
    climb, rows = read_climb(sent)
    rows[0].log.run["data"] = evil
    words = publish.entry(climb, rows, f"logs/{PUBLISHED.name}", "Good.")
    assert "<script>" not in words and "<!-- table logs/x" not in words
    assert len(BLOCK.findall(words)) == 1
