"""`ladder report`: what goes into the page, its words, and a look at it in a browser.

The tests in a browser are skipped where there is no chromium with its chromedriver; where
LADDER_BROWSER is set, as .ci/run does, a missing browser is a failure.
"""

import html
import json
import os
import re
import shutil
from functools import cache
from importlib.util import find_spec

import pytest
from helpers import HERE, LOGS

from ladder.commands import report
from ladder.commands.main import main
from ladder.files import ROOT, git
from ladder.log import mfu_line, pairs_line, result, step_line
from ladder.measure.scripts import chain, peer_scripts
from ladder.show import gather, page
from ladder.show.site import reported_section, site_sections

CLIMB, ABLATION = LOGS / f"{HERE}-climb", LOGS / f"{HERE}-ablate-2"


STEPS = 6


NAMES = {p.stem: p.relative_to(ROOT).as_posix() for p in [*chain(), *peer_scripts()]}


NEEDS_HISTORY = pytest.mark.skipif(
    git("cat-file", "-e", "d2d72edfc0b7^{commit}").returncode != 0,
    reason="this checkout lacks the commit of the published climb",
)


gathered = cache(gather.gather)  # a published climb takes a second


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"&'"


def climb_of(folder, times, *, kind="climb", rounds=3, failures=(), **run):
    """Write a climb whose scripts (by stem) took `times` milliseconds a step; None: it failed."""
    folder.mkdir(parents=True)
    run = {"commit": "unknown", "torch": "2.13.0", "device": "Test GPU", "model": "gpt2"} | run
    run = {"data": "topics", "B": 4, "T": 256, "steps": STEPS, "seed": 1} | run
    climb = {
        "kind": kind, "started": "2026-11-21 10:00", "repeats": rounds, "failures": dict(failures),
        "commit": run["commit"], "flags": [f"--steps={STEPS}"], "data": "/home/someone/texts",
        "scripts": [NAMES.get(stem, f"{stem}.py") for stem in times], "device": run["device"],
        "system": "Linux", "cores": 2, "clocks": {}, "versions": {"torch": "2.13.0"},
        "peak_flops": 4e12, "peak_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "climb.json").write_text(json.dumps(climb))
    for stem, ms in times.items():
        if ms is None:
            continue
        for k in range(rounds):
            header = {"script": f"{stem}.py", **run}
            text = log_text(header, ms * (1 + k / 1e3))
            (folder / f"{stem}.r{k + 1}.log").write_text(text, encoding="utf-8")
    return folder


def log_text(header, ms):
    """The log of a run whose steps took `ms` milliseconds each."""
    losses = [11 - step / 4 for step in range(STEPS)]
    dt = ms / 1e3
    work = dict(tokens_per_step=1024, flops_per_token=10**9)
    found = result([dt] * STEPS, losses, steps=STEPS, peak_flops=None, **work)
    lines = [pairs_line("run", header)]
    for step, loss in enumerate(losses):
        lines.append(step_line(step, STEPS, loss=loss, dt=dt, tok_per_s=1024 / dt))
    lines.append(pairs_line("effective", {"matmul": "fp32", "compiled": "no"}))
    lines.append(mfu_line(10**9, None, None))
    found = {"script": header["script"], "status": "ok", **found}
    lines.append(f"RESULT {json.dumps(found)}\n")
    return "\n".join(lines)


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    """make(*words): the status, the climbs on the page and what was printed; away from runs/."""
    monkeypatch.chdir(tmp_path)
    seen = [None]

    def spied_page(sections, made):
        seen.append(sections)
        return page.page(sections, made)

    monkeypatch.setattr(report, "page", spied_page)

    def run(*words):
        status = main(["report", *map(str, words), "--out", "page.html"])
        return status, seen[-1], "".join(capsys.readouterr())

    return run


def folders(done):
    return [climb["id"] for climb in done[1]]


def test_the_newest_own_climbs_are_shown_or_else_the_published_ones(make, tmp_path):
    published = sorted(path.parent.name for path in (ROOT / "logs").glob("*/climb.json"))
    assert folders(make()) == published[:-6:-1]
    assert (tmp_path / "page.html").stat().st_size < 4_000_000
    times = {"baseline": 20, "01_weight_tying": 18}
    for number, name in enumerate(("climb-3", "climb-2", "ablate-1", "climb-9"), 1):
        folder = climb_of(tmp_path / "runs" / name, times, kind=name.partition("-")[0])
        os.utime(folder / "climb.json", (number, number))
    (folder / "baseline.r1.log").write_text("no log")
    climb_of(tmp_path / "runs" / "climb-4", times, rounds=0)  # nothing in it yet
    done = make()
    assert folders(done) == ["ablate-1", "climb-2", "climb-3"]
    ablation, climb, _ = done[1]
    assert climb["ablation"] is ablation
    assert "left out: " in done[2] and "is not a log of this ladder" in done[2]


@NEEDS_HISTORY
def test_diffs_are_of_the_scripts_as_measured():
    rung = gathered(CLIMB)["rungs"][5]
    assert rung["source"] == "at commit d2d72edfc0b7" and "Numerics: rounding" in rung["doc"]
    (line,) = (line for line in rung["diff"] if line[0] in "+-")
    assert line.startswith("+        model = torch.compile(model)")


def test_where_a_script_comes_from(tmp_path):
    times = {"baseline": 20, "01_weight_tying": 19, "lost": 17}
    folder = climb_of(tmp_path / "own", times, commit="0123456789ab")
    (folder / "code" / "speedups").mkdir(parents=True)
    (folder / "code" / NAMES["01_weight_tying"]).write_text("a = 1\n")
    (folder / "baseline.py").write_text("a = 2\n")
    baseline, tying, lost = gathered(folder)["rungs"]
    assert baseline["source"] == tying["source"] == "kept with its logs"
    assert tying["diff"][1:] == ["-a = 2", "+a = 1"]
    assert lost["path"] is lost["diff"] is None


def test_the_page_does_not_say_where_the_text_lies(make, tmp_path):
    make(climb_of(tmp_path / "own", {"baseline": 20}, data="my own"))
    assert "/home/someone" not in (tmp_path / "page.html").read_text()


def test_the_headline_is_of_the_top_rung_and_claims_only_what_is_significant(make, tmp_path):
    def said(name, times, **options):
        (section,) = make(climb_of(tmp_path / name, times, **options))[1]
        return section["headline"], section["certainty"]

    times = {"baseline": 40, "02_tf32": 12, "03_bf16_autocast": 12.6}
    headline, certainty = said("a", times)
    assert headline == "03 bf16 autocast is 3.2 times as fast as 00 baseline on Test GPU"
    assert "3.2 to 3.2 times as many" in certainty
    assert "Of 2 differences, significant gains: 1, losses: 1" in certainty
    slower = "02 TF32 is 0.50 times as fast as 00 baseline on Test GPU"
    assert said("b", {"baseline": 9, "02_tf32": 18})[0] == slower
    headline, certainty = said("c", times, rounds=1)
    assert headline == "On Test GPU" and certainty.startswith("Rounds: 1. From three on")
    times = {"10_fused_adamw": 10, "without_01_weight_tying": 11, "without_02_tf32": 25}
    headline, _ = said("d", times, kind="ablate")
    assert headline == "10 fused AdamW is 2.5 times as fast as without 02 TF32 on Test GPU"


@pytest.mark.parametrize(
    ("log_ratios", "headline"),
    [
        ([0.05, 0.05, 0.06], "02 TF32 is 1.06"),
        ([-0.3, 0.3, 0.1], "No significant"),
    ],
)
def test_a_difference_that_is_not_significant_is_no_headline(make, tmp_path, log_ratios, headline):
    """Three rounds, in which the times of the second script differ by these."""
    folder = climb_of(tmp_path / "x", {"baseline": 10, "02_tf32": 10})
    for k, log_ratio in enumerate(log_ratios, 1):
        path = folder / f"02_tf32.r{k}.log"
        dt = f"dt {10 * (1 - log_ratio):.4f} ms"
        path.write_text(re.sub(r"dt +[\d.]+ ms", dt, path.read_text()))
    (section,) = make(folder)[1]
    assert section["headline"].startswith(headline)


def test_a_batch_has_rates_and_no_gains():
    section = gathered(LOGS / "2026-11-23-intel-xeon-amx-2-threads-batch") | {"ablation": None}
    assert "Nothing to compare" in page.verdict(section)[1]
    assert "tok/s" in section["rungs"][0]["figures"] and "" not in section["rungs"][0]["figures"]


def test_the_page_shows_text_as_text(make, tmp_path):
    folder = climb_of(tmp_path / "x", {"baseline": 20, "mine": 10}, device=f"GPU {EVIL}")
    (folder / "baseline.py").write_text(f"'''00 {EVIL} '''\na = 1\n", encoding="utf-8")
    (folder / "mine.py").write_text(f"b = r'''{EVIL} '''\n", encoding="utf-8")
    make(folder)
    text = (tmp_path / "page.html").read_text()
    assert text.count("<script") == 1  # its own
    assert "<img" not in text
    for words in (f"GPU {EVIL}", f"00 {EVIL}", f"+b = r'''{EVIL}"):
        assert words in html.unescape(text)


@pytest.mark.parametrize("name", ["no_such", "failed"])
def test_what_is_no_climb_is_told_in_one_line(make, tmp_path, name):
    climb_of(tmp_path / "failed", {"baseline": None}, failures={"baseline.r1": "memory"})
    status, _, said = make(tmp_path / name)
    assert status == 2 and said.count("\n") == 1 and name in said


def test_only_a_page_of_its_own_is_replaced(make, tmp_path):
    climb, out = climb_of(tmp_path / "climb", {"baseline": 20}), tmp_path / "page.html"
    out.write_text("<html>my holidays</html>")
    status, _, said = make(climb)
    assert status == 2 and "is not a page of ladder report: choose another --out" in said
    assert out.read_text() == "<html>my holidays</html>"
    out.write_text(f"{report.MARKER} old news")
    assert make(climb)[0] == 0 and "old news" not in out.read_text()


@pytest.fixture(scope="module")
def chromium():
    """Chromium with a window of 1200 pixels."""
    programs = [find_spec("selenium"), *map(shutil.which, ("chromium", "chromedriver"))]
    if not all(programs):
        stop = pytest.fail if "LADDER_BROWSER" in os.environ else pytest.skip
        stop("needs selenium, chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[1]
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=programs[2])
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


@pytest.fixture
def shown(chromium):
    """shown(selector): the elements that it selects and that a reader sees."""

    def find(selector):
        elements = chromium.find_elements("css selector", selector)
        return [element for element in elements if element.is_displayed()]

    yield find
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def assert_narrow(chromium, width):
    """The page needs no more than this width."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert chromium.execute_script("return document.documentElement.scrollWidth") == width


def assert_silent(chromium):
    """No word in the console, and no request but for the file itself."""
    assert chromium.get_log("browser") == []
    sent = []
    for entry in chromium.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        if event["method"].endswith("WillBeSent"):
            sent.append(event["params"]["request"]["url"])
    assert sent
    for url in sent:
        assert url.startswith(("file:", "data:", "about:"))


@NEEDS_HISTORY
def test_the_page_in_a_browser(tmp_path, make, chromium, shown):
    """Bars as long as their rates, a rung that opens, climbs to choose from, a narrow screen."""
    from selenium.webdriver.support.ui import Select

    other = climb_of(tmp_path / "other", {"baseline": 1000, "01_weight_tying": 900})
    make(CLIMB, ABLATION, other)
    chromium.get(f"{(tmp_path / 'page.html').as_uri()}#{CLIMB.name}/05_torch_compile")
    scale = []
    for bar, rung in zip(shown(".bars .bar"), gathered(CLIMB)["rungs"], strict=True):
        scale.append(bar.rect["width"] / rung["row"].tok_per_s)
    assert max(scale) == pytest.approx(min(scale), rel=0.02)
    assert len(shown(".mark.alone .dot")) == 9  # 06 cannot be taken back
    assert "Change against 04 residual scaling" in shown(".rung[open] > div")[0].text
    assert "torch.compile(model)" in shown(".add")[0].text
    shown(".rung summary")[0].click()
    assert len(shown(".rung[open]")) == 2
    Select(shown("[name=climb]")[0]).select_by_value("other")
    assert chromium.current_url.endswith("#other")
    assert len(shown(".bars .bar")) == 2
    assert_narrow(chromium, 360)
    assert_silent(chromium)


def test_the_site_is_what_report_makes_of_the_repository():
    """Else: `ladder report --site`."""
    text = report.SITE.read_text("utf-8")
    assert text == page.page(site_sections(), made="")
    assert len(text.encode()) < 300_000


def test_the_site_in_a_browser(chromium, shown):
    """The staircase to scale, the next and the previous rung by key, a phone, no script."""
    from selenium.webdriver.support.ui import WebDriverWait

    chromium.get(report.SITE.as_uri())
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
        assert len(shown(".rung[open]")) == 1
    assert_narrow(chromium, 400)
    assert_silent(chromium)
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    chromium.refresh()
    shown("#ladder .rung summary")[6].click()
    assert "F.scaled_dot_product_attention" in shown(".rung[open]")[0].text
