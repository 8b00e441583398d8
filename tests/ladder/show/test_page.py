"""The page of `ladder report`: its words and pictures."""

import html

import pytest
from climbs import LOGS, NAMES, change, climb_of

from ladder.measure.folder import Climb, scripts_of
from ladder.measure.rows import read_climb
from ladder.show.diffs import diff_lines
from ladder.show.gains import headline_of
from ladder.show.page import climb_section, page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"&'"


@pytest.mark.parametrize(
    ("times", "options", "headline"),
    [
        ({"baseline": 40, "02_tf32": 12}, {}, "02 TF32 is 3.33 times as fast as 00 baseline"),
        ({"baseline": 9, "02_tf32": 9}, {}, "No significant difference between 02 TF32 and"),
        ({"baseline": 40, "02_tf32": 12}, {"rounds": 1}, "A first look: 02 TF32 beside 00"),
        (
            {"10_fused_adamw": 10, "without_01_weight_tying": 11, "without_02_tf32": 25},
            {"kind": "without"},
            "without 02 TF32 is 60 % slower than 10 fused AdamW",
        ),
        (
            {"transformers_compiled": 10, "10_fused_adamw": 9, "31_chunked_loss": 12},
            {"kind": "transformers"},
            "10 fused AdamW is 11 % faster than transformers, compiled",
        ),
    ],
)
def test_the_headline_claims_only_what_is_significant(times, options, headline, tmp_path):
    assert headline_of(read_climb(climb_of(tmp_path, times, **options)))[0].startswith(headline)


def test_the_page_shows_text_as_text_and_not_where_it_lies(tmp_path):
    times = {"baseline": 20, "mine": 10}
    folder = climb_of(tmp_path / EVIL[-5:], times, device=f"GPU {EVIL}", data="/home/me/texts")
    (folder / "code").mkdir()
    (folder / "code" / "baseline.py").write_text("a = 1\n", encoding="utf-8")
    mine = f"'''{EVIL} '''\nb = r'''{EVIL} '''\n"
    (folder / "code" / "mine.py").write_text(mine, encoding="utf-8")
    text = page([climb_section(folder)])
    assert "<script" not in text and "<img" not in text and "/home/me" not in text
    for words in (f"GPU {EVIL}", f"<dd>{EVIL}", f"+b = r'''{EVIL}"):
        assert words in html.unescape(text)


def test_of_a_climb_only_what_is_in_its_folder_is_shown(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    folder = climb_of(tmp_path / "climb", {"baseline": 20, "01_weight_tying": 19, "secret": 1})
    (folder / "code" / "speedups").mkdir(parents=True)
    (folder / "code" / NAMES["01_weight_tying"]).write_text("a = 1\n")
    (folder / "code" / "baseline.py").write_text("a = 2\n")
    (folder / "code" / "secret.py").symlink_to(secret)
    scripts = scripts_of(Climb.read_from(folder), tmp_path)
    assert sorted(scripts) == ["01_weight_tying", "baseline"]
    diff = diff_lines(scripts["baseline"], scripts["01_weight_tying"])
    assert diff[3:] == ["-a = 2", "+a = 1"]


@pytest.mark.parametrize("ended", [True, False])
def test_a_climb_that_was_cut_short_says_how_to_go_on(ended, tmp_path):
    times = {"baseline": 20, "02_tf32": 10}
    folder = climb_of(tmp_path / "runs" / "climb-1", times, ended=True)
    how = "<code>ladder climb --resume runs/climb-1</code>"
    assert how not in climb_section(folder).html
    change(folder, ended=ended)
    for path in [*folder.glob("*.r3.log"), *folder.glob("02_tf32.r2.log")]:
        path.unlink()
    text = climb_section(folder).html
    assert ("Its time ran out" if ended else "It is not finished") + ", in round 2 of 3." in text
    assert how in text


def test_a_script_that_is_in_no_commit_is_a_text_beside_its_published_logs(tmp_path):
    climb = Climb.read_from(LOGS / "2026-11-26-amd-epyc-1-thread-climb-4")
    script = scripts_of(climb, tmp_path)["vocab_6e4"]
    assert script.read_text("utf-8") == (climb.folder / "vocab_6e4.py.txt").read_text("utf-8")
