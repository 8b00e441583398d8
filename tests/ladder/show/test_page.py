"""The page of `ladder report`: its words and pictures, and a look at it in a browser."""

import html
import os
import shutil
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest
from climbs import HERE, LOGS, NAMES, climb_of

from ladder.commands.main import main
from ladder.measure.folder import Climb
from ladder.measure.rows import read_climb
from ladder.show.chart import WIDE
from ladder.show.diffs import diff_lines
from ladder.show.gains import draw_climb, headline_of
from ladder.show.page import climb_section, page, scripts_of

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"&'"


@pytest.mark.parametrize(
    ("times", "options", "headline"),
    [
        ({"baseline": 40, "02_tf32": 12}, {}, "02 TF32 is 3.33 times as fast as 00 baseline"),
        ({"baseline": 9, "02_tf32": 9}, {}, "No significant difference between 02 TF32 and"),
        (
            {"10_fused_adamw": 10, "without_01_weight_tying": 11, "without_02_tf32": 25},
            {"kind": "without"},
            "without 02 TF32 is 0.40 times as fast as 10 fused AdamW",
        ),
    ],
)
def test_the_headline_claims_only_what_is_significant(times, options, headline, tmp_path):
    assert headline_of(*read_climb(climb_of(tmp_path, times, **options)))[0].startswith(headline)


def test_the_page_shows_text_as_text_and_not_where_it_lies(tmp_path):
    times = {"baseline": 20, "mine": 10}
    folder = climb_of(tmp_path / EVIL[-5:], times, device=f"GPU {EVIL}", data="/home/me/texts")
    said = f"Change: {EVIL}\nWhy: a\nNumerics: a\nRun: a"
    (folder / "baseline.py").write_text(f"'''00\n{said}'''\na = 1\n", encoding="utf-8")
    (folder / "mine.py").write_text(f"b = r'''{EVIL} '''\n", encoding="utf-8")
    text = page([climb_section(folder)])
    assert "<script" not in text and "<img" not in text and "/home/me" not in text
    for words in (f"GPU {EVIL}", f"<dd>{EVIL}", f"+b = r'''{EVIL}"):
        assert words in html.unescape(text)


def test_a_picture_has_the_numbers_of_the_climb():
    """Bars as long as the times; each gain that is at most twice as fast as RUNLOG.md has it."""
    climb, rows = read_climb(LOGS / f"{HERE}-climb-3")
    root = ElementTree.fromstring(draw_climb(climb, rows, WIDE).svg())
    bars = [float(bar.get("width")) + 1 for bar in root.iter() if bar.get("class") == "measured"]
    assert [bar / bars[0] for bar in bars] == pytest.approx(
        [row.ms / rows[0].ms for row in rows], abs=0.01
    )
    said = [element.text for element in root.iter()]
    assert {f"{row.ms:,.0f}" for row in rows} <= {*said}
    assert "+10.1 % (+3.3 … +17.4)" in said


@pytest.fixture
def chromium():
    """A browser, whose console has no word at the end: nor of what the page's policy refuses.

    Skipped where there is no chromium with its chromedriver; where LADDER_BROWSER is set, as
    .ci/run does, a missing browser is a failure.
    """
    programs = [find_spec("selenium"), *map(shutil.which, ("chromium", "chromedriver"))]
    if not all(programs):
        stop = pytest.fail if "LADDER_BROWSER" in os.environ else pytest.skip
        stop("needs selenium, chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[1]
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=programs[2])
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver
        assert driver.get_log("browser") == []


def test_the_page_in_a_browser(tmp_path, chromium):
    """Wide and narrow: pictures fit, and nothing is fetched."""
    out = tmp_path / "page.html"
    folders = [LOGS / f"{HERE}-climb-3", LOGS / "2026-11-25-amd-epyc-2-threads-ablate"]
    folders.append(LOGS / "2026-11-25-amd-epyc-1-thread-train-tiny")
    assert main(["report", *map(str, folders), "--out", str(out)]) == 0
    chromium.get(out.as_uri())
    assert chromium.title.startswith("Training tiny on tinyshakespeare: best validation loss 5.96")
    for width, kind, pictures in ((1200, "wide", 3), (400, "narrow", 3), (720, "wide", 3)):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert chromium.execute_script("return document.documentElement.scrollWidth") == width
        shown = chromium.find_elements("css selector", "main div > svg")
        shown = [picture for picture in shown if picture.is_displayed()]
        assert len(shown) == pictures and all(picture.rect["width"] > 300 for picture in shown)
        assert len(chromium.find_elements("css selector", f".{kind}")) == pictures
    requests = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert all(name.startswith("data:") for name in chromium.execute_script(requests))


# ------------------------------------------------------------------ scripts


def test_of_a_climb_only_what_is_in_its_folder_is_shown(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    folder = climb_of(tmp_path / "climb", {"baseline": 20, "01_weight_tying": 19, "secret": 1})
    (folder / "code" / "speedups").mkdir(parents=True)
    (folder / "code" / NAMES["01_weight_tying"]).write_text("a = 1\n")
    (folder / "baseline.py").write_text("a = 2\n")
    (folder / "secret.py").symlink_to(secret)
    scripts = scripts_of(folder, Climb.read_from(folder), tmp_path)
    assert sorted(scripts) == ["01_weight_tying", "baseline"]
    diff = diff_lines(scripts["baseline"], scripts["01_weight_tying"])
    assert diff[3:] == ["-a = 2", "+a = 1"]
