"""page.py: the page's words, and a look at it in a browser."""

import html
import itertools
import os
import re
import shutil
import subprocess

import pytest
from climbs import HERE, LOGS, climb_of
from site_page import all_numbers

from ladder.commands import roofline
from ladder.commands.main import main
from ladder.files import ROOT
from ladder.show.gather import gather
from ladder.show.measured import verdict
from ladder.show.page import page

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
            {"kind": "without"},
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
    (folder / "baseline.py").write_text(f"'''00 {EVIL} `{EVIL}`'''\na = 1\n", encoding="utf-8")
    (folder / "mine.py").write_text(f"b = r'''{EVIL} '''\n", encoding="utf-8")
    text = page([gather(folder)], made="")
    assert text.count("<script") == 1  # its own
    assert "<img" not in text and "/home/someone" not in text
    for words in (f"GPU {EVIL}", f"00 {EVIL}", f"+b = r'''{EVIL}"):
        assert words in html.unescape(text)


def test_the_page_in_a_browser(tmp_path, chromium, shown, narrow):
    """Bars as long as their rates, a rung that opens, climbs to choose from, a narrow screen."""
    from selenium.webdriver.support.ui import Select

    climb, without = LOGS / f"{HERE}-climb", LOGS / f"{HERE}-ablate-2"
    other = climb_of(tmp_path / "other", {"baseline": 1000, "01_weight_tying": 900})
    out = tmp_path / "page.html"
    assert main(["report", *map(str, (climb, without, other)), "--out", str(out)]) == 0
    chromium.get(f"{out.as_uri()}#{climb.name}/05_torch_compile")
    scale = []
    for bar, rung in zip(shown(".bars > :first-child"), gather(climb).rungs, strict=True):
        scale.append(bar.rect["width"] / rung.row.tok_per_s)
    assert max(scale) == pytest.approx(min(scale), rel=0.02)
    assert len(shown(".mark.alone .dot")) == 9  # 06 cannot be taken back
    assert len(shown(".rung[open]")) == 1
    chromium.execute_script("scrollTo(0, 0)")  # from below the head
    shown(".rung summary")[0].click()
    assert len(shown(".rung[open]")) == 2
    Select(shown("[name=climb]")[0]).select_by_value("other")
    assert len(shown(".bars > :first-child")) == 2
    narrow(360)


@pytest.mark.parametrize(("width", "media"), [(720, ""), (820, ""), (720, "print")])
def test_bars_are_wide_enough_to_read(width, media, tmp_path, chromium, shown, narrow):
    """So are the axes of gains; no text of an axis lies over another. A4 has 720 pixels."""
    out = tmp_path / "page.html"
    assert main(["report", str(LOGS / f"{HERE}-climb"), "--out", str(out)]) == 0
    chromium.get(out.as_uri())
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    narrow(width)
    for track in shown(".ladder .bars, .ladder .gains"):
        assert track.rect["width"] >= 120
    for scale in shown(".ladder .scale"):
        marks = scale.find_elements("css selector", "i")
        marks = [mark.rect for mark in marks if mark.is_displayed()]
        for one, other in itertools.pairwise(marks):
            assert one["x"] + one["width"] < other["x"]
    assert bool(shown(".keys")) == (not media)


def test_a_piece_of_a_bar_is_coloured_where_the_change_is_significant(tmp_path, chromium, shown):
    times = {"baseline": 40, "02_tf32": 12, "03_bf16_autocast": 12.6, "04_residual_scaling": 12.6}
    out = tmp_path / "page.html"
    assert main(["report", str(climb_of(tmp_path / "climb", times)), "--out", str(out)]) == 0
    chromium.get(out.as_uri())
    kinds = []
    for rung in shown(".rung"):
        pieces = rung.find_elements("css selector", ".bars .bar:not(:first-child)")
        kinds.append([piece.get_attribute("class") for piece in pieces])
    assert kinds == [[], ["bar added"], ["bar lost"], []]
    (added,) = shown(".bars .added")
    first, second, *_ = shown(".bars > :first-child")
    assert added.rect["x"] == pytest.approx(first.rect["x"] + first.rect["width"], abs=1)
    end = added.rect["x"] + added.rect["width"]
    assert end == pytest.approx(second.rect["x"] + second.rect["width"], abs=1)
    assert len(shown(".mark:is(.up, .down) .dot")) == 2


def test_without_script_all_climbs_are_shown_and_no_dead_menu(tmp_path, chromium, shown):
    folders = [climb_of(tmp_path / name, {"baseline": 9, "02_tf32": 8}) for name in ("a", "b")]
    out = tmp_path / "page.html"
    assert main(["report", *map(str, folders), "--out", str(out)]) == 0
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chromium.get(out.as_uri())
        assert len(shown("h2")) == 2 and not shown("select, .keys, button, :disabled")
        shown("summary")[1].click()
        assert len(shown(".rung[open] .logs")) == 1
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.fixture
def site(chromium):
    """docs/index.html in the browser."""
    chromium.get("about:blank")  # an address that differs after # alone loads nothing anew
    chromium.get((ROOT / "docs" / "index.html").as_uri())
    return chromium


def test_the_story_in_a_browser(site, shown, narrow):
    """Each rung on the scale of the step before it, and above that on the baseline's; a phone."""
    totals = [row[4] / 10 for row in all_numbers()["cards"]["A100 SXM 80GB"]["rows"][16]]
    for k, rung in enumerate(shown(".story .rung:has(.pair)")):
        full = rung.find_element("css selector", ".after .stack").rect["width"]
        before = totals[max(0, k - 1)]
        longest = max(before, totals[k])
        assert width_of(rung, ".after") == pytest.approx(full * totals[k] / longest, abs=2)
        if k:
            assert width_of(rung, ".before") == pytest.approx(full * before / longest, abs=2)
            assert width_of(rung, ".so-far") == pytest.approx(full * totals[k] / totals[0], abs=2)
    assert [len(shown(f".{kind}")) for kind in ("after", "before", "pair .dot")] == [11, 10, 7]
    gone = [part.get_attribute("style") for part in shown(".before .stack > span")[4:8]]
    assert ["--gone: 85.50" in gone[0], "--gone: 0" in gone[2]] == [True, True]  # 19.2 to 132
    assert shown(".before em")[0].text == "−541 ms"
    assert len(shown(".columns img")) == 4
    for stem in ("11_keep_memory", "12_causal_blocks"):
        assert "Measured here on AMD EPYC" in shown(f"[id='ladder/{stem}']")[0].text
        assert shown(f"[id='ladder/{stem}'] .diff")
    for size in (820, 720, 400):
        narrow(size)
        assert min(bar.rect["width"] for bar in shown(".pair .stack, .track")) >= 320
    assert not shown(".keys")


def width_of(rung, kind):
    """How wide the parts of a bar are together."""
    parts = rung.find_elements("css selector", f"{kind} .stack > [class^=part]")
    return sum(part.rect["width"] for part in parts)


def test_the_race_runs_at_the_speed_of_the_steps_unless_motion_is_unwanted(site, shown):
    button = shown(".race button")[0]

    def lanes(name):
        return [lane.value_of_css_property(f"animation-{name}") for lane in shown(".lanes i")]

    assert set(lanes("name")) == {"none"}
    button.click()
    assert lanes("duration")[0] == "0.8512s" and lanes("duration")[-1] == "0.0679s"
    reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    site.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": reduced})
    assert set(lanes("name")) == {"none"} and not button.is_displayed()
    site.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_no_request_leaves_the_page_and_it_works_without_script(chromium, site, shown):
    requests = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert [name for name in site.execute_script(requests) if not name.startswith("data:")] == []
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chromium.get("about:blank")
        chromium.get((ROOT / "docs" / "index.html").as_uri())
        assert shown(".line-of-ladder .ms")[-1].text == "68 ms"
        assert shown("[id='ladder/05_torch_compile'] .diff") and shown(".columns img")
        assert not shown(".race, [name=card], .bars-of-step")
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_keys_go_through_the_story_and_a_climb(site, shown):
    """From a menu too, and the bar of the rung before stays in sight."""
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(site, 10)
    top = "return document.activeElement.closest('.rung')?.id"

    def press(key, stem):
        site.switch_to.active_element.send_keys(key)
        wait.until(lambda _: (site.execute_script(top) or "").endswith(f"/{stem}"))

    shown("[name=card]")[0].send_keys("")
    press("n", "baseline")
    press("n", "01_weight_tying")
    press("n", "02_tf32")
    press("p", "01_weight_tying")
    assert shown("[name=card]")[0].get_attribute("value") == "A100 SXM 80GB"
    bars = shown("[id='ladder/01_weight_tying'] .pair .stack")
    assert [in_sight(site, bar) for bar in bars] == [True, True, True]
    site.find_element("link text", "measured").click()
    press("n", "baseline")
    press("n", "01_weight_tying")
    (opened,) = shown(".rung[open]")
    before = opened.find_element("xpath", "preceding-sibling::details[1]")
    assert in_sight(site, before.find_element("css selector", ".bar"))


def in_sight(driver, element):
    script = """const box = arguments[0].getBoundingClientRect();
    return document.elementsFromPoint(box.x + 1, box.y + box.height / 2).includes(arguments[0]);"""
    return driver.execute_script(script, element)


def test_ten_cards_on_the_page_are_as_the_command_prints_them(site, shown, capsys, monkeypatch):
    """At the B that comes with a card, and at one that may be too large."""
    from selenium.webdriver.support.ui import Select

    monkeypatch.setenv("COLUMNS", "200")
    names = [*roofline.LISTED]
    for name in names[:: len(names) // 9][:10]:
        Select(shown("[name=card]")[0]).select_by_visible_text(name)
        chosen = shown("[name=B]")[0].get_attribute("value")
        assert max(bar.rect["height"] for bar in shown(".before .stack")) < 40  # one line
        compare(shown, roofline_of(capsys, name))
        said = roofline_of(capsys, name, chosen)
        assert said == roofline_of(capsys, name)
        Select(shown("[name=B]")[0]).select_by_visible_text("16")
        said = roofline_of(capsys, name, "16")
        compare(shown, said)
        note = shown(".fits")[0].text if shown(".fits") else ""
        assert (f"note  {note[:1].lower()}{note[1:]}".removesuffix(".") in said) == bool(note)
        assert bool(note) == (roofline.what_fits(roofline.LISTED[name])[0] < 16)


def roofline_of(capsys, name, *size):
    """What `ladder roofline` prints of a card."""
    assert main(["roofline", "--gpu", name, *(f"--batch-size={B}" for B in size)]) == 0
    return capsys.readouterr().out


def compare(shown, said):
    """The page has the table's milliseconds and gains, and the reasons below it."""
    table, _, reasons = said.partition("The roofline of")[2].partition("Over the rung before")
    rows = [row.strip() for row in table.splitlines()]
    lines = [line.strip() for line in reasons.splitlines()]
    for rung, line in zip(shown(".rung:has(.pair)"), shown(".line-of-ladder"), strict=True):
        title = line.find_element("css selector", ".name").text
        (row,) = [row for row in rows if row.startswith(title)]
        now = rung.find_element("css selector", ".now")
        if now.text == "not":  # calculated
            assert "as 06" in row
            continue
        parts = [text.text.split()[-2] for text in rung.find_elements("css selector", ".each b")]
        gain = line.find_element("css selector", ".gain").text
        numbers = [now.text.removesuffix(" ms"), *gain.split(), *parts]
        assert row.removeprefix(title).split()[: len(numbers)] == numbers, title
        if gain:
            (reason,) = [reason for reason in lines if reason.startswith(title)]
            shown_reason = rung.find_element("css selector", ".reason").text
            assert reason.removeprefix(f"{title}: ") in shown_reason


def test_published_the_page_links_to_the_pages_of_its_repository(tmp_path):
    """Markdown on a website would open as raw text."""
    workflow = (ROOT / ".github" / "workflows" / "pages.yml").read_text()
    script = re.search(r"- run: \|\n(.*?)\n        env:", workflow, re.DOTALL)[1]
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.html"
    shutil.copy(ROOT / "docs" / "index.html", page)
    places = {"REPOSITORY": "https://github.com/a/b"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=os.environ | places, check=True)
    links = re.findall(r'href="([^"#][^"]*)', page.read_text())
    assert "https://github.com/a/b/blob/HEAD/docs/primer.md" in links
    assert [link for link in links if not link.startswith(("https:", "data:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_and_the_words_on_them_have_contrast(scheme, site, shown):
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    site.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    ground = site.find_element("tag name", "body").value_of_css_property("background-color")
    for part in shown("[id='ladder/baseline'] .stack > [class^=part]"):
        color = part.value_of_css_property("background-color")
        assert contrast(color, ground) >= 3
        assert contrast(color, part.value_of_css_property("color")) >= 4.5
    for word in shown(".story .soft, .story .name, .story p, .story .said"):
        assert contrast(word.value_of_css_property("color"), ground) >= 4.5


def contrast(one, other):
    """Of two colours, nearly as WCAG defines it: 2.2 is sRGB's power but for the darkest tones."""
    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color):
    red, green, blue, *_ = [(float(value) / 255) ** 2.2 for value in re.findall(r"[\d.]+", color)]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
