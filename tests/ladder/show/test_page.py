"""page.py: the page's words, and a look at it in a browser."""

import html
import re

import pytest
from climbs import HERE, LOGS, climb_of
from site_page import all_numbers

from ladder.commands import roofline
from ladder.commands.main import main
from ladder.files import ROOT
from ladder.show.gather import gather
from ladder.show.measured import draw_climb, verdict
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


def test_a_piece_of_a_bar_is_coloured_where_the_change_is_significant(tmp_path):
    times = {"baseline": 40, "02_tf32": 10, "03_bf16_autocast": 20, "04_residual_scaling": 20}
    _, faster, slower, same = draw_climb(gather(climb_of(tmp_path, times))).rows
    assert (faster.change, faster.bar) == ("added", "width:100.00%")
    assert (slower.change, slower.bar) == ("lost", "width:50.00%")
    assert (same.change, same.state) == ("", "")
    assert faster.changed == "left:25.00%;width:75.00%"


@pytest.fixture(params=["story", "report"])
def either(request, tmp_path):
    """The address of the ladder's page; of a report of two climbs."""
    path = ROOT / "docs" / "index.html"
    if request.param == "report":
        path = tmp_path / "page.html"
        climbs = [str(LOGS / f"{HERE}-{climb}") for climb in ("climb", "climb-2")]
        assert main(["report", *climbs, "--out", str(path)]) == 0
    return path.as_uri()


@pytest.mark.parametrize(("width", "media"), [(360, ""), (720, ""), (820, ""), (720, "print")])
def test_bars_are_wide_enough_to_read(width, media, either, chromium, shown, narrow):
    """So are the axes of gains. A4 has 720 pixels."""
    chromium.get(either)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    narrow(width)
    bars = shown(".pair .stack, .track, .ladder .bars, .ladder .gains")
    assert min(bar.rect["width"] for bar in bars) >= 120


@pytest.mark.parametrize("width", [360, 720, 1200])
def test_ticks_stand_above_what_they_measure(width, tmp_path, chromium, shown, narrow):
    """Of the losses too: each axis of a head is as wide as the marks or bars below it."""
    path = tmp_path / "page.html"
    folder = LOGS / "2026-11-26-amd-epyc-1-thread-climb-8"
    assert main(["report", str(folder), "--out", str(path)]) == 0
    chromium.get(path.as_uri())
    narrow(width)
    places = [(each.rect["x"], each.rect["width"]) for each in shown(".bars, .gains")]
    axes = shown(".ladder .scale")
    assert len(axes) == 3
    for axis in axes:
        assert (axis.rect["x"], axis.rect["width"]) in places


def test_no_request_leaves_a_page(either, chromium):
    chromium.get(either)
    requests = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    for name in chromium.execute_script(requests):
        assert name.startswith("data:")


def test_without_script_all_is_shown_and_no_dead_menu(either, chromium, shown):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    chromium.get(either)
    assert len(shown("main > section")) == 2
    shown(".rung summary")[-1].click()
    assert shown(".rung[open]") and shown(".rung .diff")
    for number in chromium.find_elements("css selector", ".line-of-ladder .ms, .rung summary b"):
        assert number.text
    assert not shown(".race, .bars-of-step, select, button, .keys, :disabled")


@pytest.fixture
def site(chromium):
    """docs/index.html in the browser."""
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
    assert "--gone: 85.50" in gone[0] and "--gone: 0" in gone[2]  # 19.2 to 132 TFLOP/s
    assert shown(".before em")[0].text == "−541 ms"
    narrow(400)
    assert min(bar.rect["width"] for bar in shown(".pair .stack, .track")) >= 320


def width_of(rung, kind):
    """How wide the parts of a bar are together."""
    parts = rung.find_elements("css selector", f"{kind} .stack > [class^=part]")
    return sum(part.rect["width"] for part in parts)


def test_the_race_runs_at_the_speed_of_the_steps_unless_motion_is_unwanted(site, shown):
    (button,) = shown(".race button")
    button.click()
    first, *_, last = shown(".lanes i")
    assert first.value_of_css_property("animation-duration") == "0.8512s"
    assert last.value_of_css_property("animation-duration") == "0.0679s"
    reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    site.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": reduced})
    assert last.value_of_css_property("animation-name") == "none" and not button.is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_contrast(scheme, site, shown):
    """As WCAG defines it, nearly: 2.2 is sRGB's power but for the darkest tones."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    site.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    body = site.find_element("tag name", "body")
    grounds = [(word, body) for word in shown(".story .soft, .story .name, .story p, .diff .soft")]
    grounds += [(part, part) for part in shown("[id='ladder/baseline'] .stack > [class^=part]")]
    for word, ground in grounds:
        colors = (
            word.value_of_css_property("color"),
            ground.value_of_css_property("background-color"),
        )
        dark, light = sorted(map(luminance, colors))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(color):
    red, green, blue, *_ = [(float(value) / 255) ** 2.2 for value in re.findall(r"[\d.]+", color)]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_keys_go_through_the_story_and_a_climb(site, shown):
    """From a menu too."""
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
    site.find_element("link text", "measured").click()
    press("n", "baseline")
    press("n", "01_weight_tying")
    assert len(shown(".rung[open]")) == 1


def test_ten_cards_on_the_page_are_as_the_command_prints_them(site, shown, capsys, monkeypatch):
    """At the B that comes with a card, and at one that may be too large."""
    from selenium.webdriver.support.ui import Select

    monkeypatch.setenv("COLUMNS", "200")
    names = [*roofline.LISTED]
    for name in names[:: len(names) // 9][:10]:
        for B in ([], ["--batch-size=16"]):
            card, size = map(Select, shown("[name=card], [name=B]"))
            card.select_by_visible_text(name)
            if B:
                size.select_by_visible_text("16")
            assert main(["roofline", "--gpu", name, *B]) == 0
            said = capsys.readouterr().out
            compare(shown, said)
            largest, _ = roofline.what_fits(roofline.LISTED[name])
            assert bool(B and largest < 16) == ("fits the baseline" in said) == bool(shown(".fits"))


def compare(shown, said):
    """The page has the milliseconds and gains of the table."""
    _, _, table = said.partition("The roofline of")
    rows = [row.strip() for row in table.splitlines()]
    for rung, line in zip(shown(".rung:has(.pair)"), shown(".line-of-ladder"), strict=True):
        title = line.find_element("css selector", ".name").text
        row = next(row for row in rows if row.startswith(title))
        now = rung.find_element("css selector", ".now").text
        gain = line.find_element("css selector", ".gain").text
        parts = [text.text.split()[-2] for text in rung.find_elements("css selector", ".each b")]
        numbers = [now.removesuffix(" ms"), *gain.split(), *parts]
        if now == "not":  # calculated
            numbers = ["as", "06"]
        assert row.removeprefix(title).split()[: len(numbers)] == numbers, title


def test_the_page_links_to_what_pages_yml_makes_addresses_of():
    """Markdown on a website would open as raw text."""
    links = re.findall(r'href="([^"#][^"]*)', (ROOT / "docs" / "index.html").read_text("utf-8"))
    assert "primer.md" in links
    for link in links:
        assert re.match(r"https:|data:|\.\./README\.md$|[a-z-]+\.md", link)
