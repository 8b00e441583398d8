"""page.py: the page's words, and a look at it in a browser."""

import html

import pytest
from climbs import HERE, LOGS, climb_of
from site_page import reported_section

from ladder.commands.main import main
from ladder.files import ROOT
from ladder.show.gather import gather
from ladder.show.page import page, verdict

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"&'"


@pytest.mark.parametrize(
    ("times", "options", "headline", "certainty"),
    [
        (
            {"baseline": 40, "02_tf32": 12, "03_bf16_autocast": 12.6},
            {},
            "03 bf16 autocast is 3.2 times as fast as 00 baseline on Test GPU",
            "Of 2 differences, significant gains: 1, losses: 1",
        ),
        (
            {"baseline": 9, "02_tf32": 18},
            {"rounds": 1},
            "On Test GPU",
            "Rounds: 1. From three on",
        ),
        (
            {"10_fused_adamw": 10, "without_01_weight_tying": 11, "without_02_tf32": 25},
            {"kind": "ablate"},
            "10 fused AdamW is 2.5 times as fast as without 02 TF32 on Test GPU",
            "significant gains: 2",
        ),
        (
            {"baseline": 9, "02_tf32": 9},
            {},
            "No significant difference on Test GPU: 02 TF32 over 00 baseline",
            "significant gains: 0, losses: 0",
        ),
    ],
)
def test_the_headline_claims_only_what_is_significant(
    times, options, headline, certainty, tmp_path
):
    said, how_sure = verdict(gather(climb_of(tmp_path, times, **options)))
    assert said == headline and certainty in how_sure


def test_the_page_shows_text_as_text_and_not_where_it_lies(tmp_path):
    times = {"baseline": 20, "mine": 10}
    folder = climb_of(tmp_path, times, device=f"GPU {EVIL}", data="/home/someone/texts")
    (folder / "baseline.py").write_text(f"'''00 {EVIL} '''\na = 1\n", encoding="utf-8")
    (folder / "mine.py").write_text(f"b = r'''{EVIL} '''\n", encoding="utf-8")
    text = page([{**gather(folder), "ablation": None}], made="")
    assert text.count("<script") == 1  # its own
    assert "<img" not in text and "/home/someone" not in text
    for words in (f"GPU {EVIL}", f"00 {EVIL}", f"+b = r'''{EVIL}"):
        assert words in html.unescape(text)


def test_the_page_in_a_browser(tmp_path, chromium, shown, narrow):
    """Bars as long as their rates, a rung that opens, climbs to choose from, a narrow screen."""
    from selenium.webdriver.support.ui import Select

    climb, ablation = LOGS / f"{HERE}-climb", LOGS / f"{HERE}-ablate-2"
    other = climb_of(tmp_path / "other", {"baseline": 1000, "01_weight_tying": 900})
    out = tmp_path / "page.html"
    assert main(["report", *map(str, (climb, ablation, other)), "--out", str(out)]) == 0
    chromium.get(f"{out.as_uri()}#{climb.name}/05_torch_compile")
    scale = []
    for bar, rung in zip(shown(".bars .bar"), gather(climb)["rungs"], strict=True):
        scale.append(bar.rect["width"] / rung["row"].tok_per_s)
    assert max(scale) == pytest.approx(min(scale), rel=0.02)
    assert len(shown(".mark.alone .dot")) == 9  # 06 cannot be taken back
    assert len(shown(".rung[open]")) == 1
    shown(".rung summary")[0].click()
    assert len(shown(".rung[open]")) == 2
    Select(shown("[name=climb]")[0]).select_by_value("other")
    assert len(shown(".bars .bar")) == 2
    narrow(360)


def test_the_site_in_a_browser(chromium, shown, narrow):
    """The staircase to scale, the next and the previous rung by key, a phone."""
    from selenium.webdriver.support.ui import WebDriverWait

    chromium.get((ROOT / "docs" / "index.html").as_uri())
    widths = [stair.rect["width"] for stair in shown(".stair")]
    milliseconds = [sum(rung["roofline"].values()) for rung in reported_section([])["rungs"]]
    assert len(widths) == 11
    for width, ms in zip(widths, milliseconds, strict=False):
        assert width == pytest.approx(widths[0] * ms / milliseconds[0], abs=2)
    wait = WebDriverWait(chromium, 10, ignored_exceptions=[IndexError])
    body = chromium.find_element("tag name", "body")
    for key, title in (("n", "00 baseline"), ("n", "01 weight tying"), ("p", "00 baseline")):
        body.send_keys(key)
        wait.until(lambda _, title=title: shown(".rung[open]")[0].text.startswith(title))
    narrow(400)
