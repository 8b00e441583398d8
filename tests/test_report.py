"""`ladder report`: what goes into the page, and the page itself in a real headless Chromium.

The tests that open it are skipped where there is no chromium with its chromedriver; where
LADDER_BROWSER is set, as .ci/run does, a missing browser is a failure.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from itertools import product

import pytest
from conftest import ROOT

from ladder.__main__ import main
from ladder.commands import ablate, gather, report
from ladder.commands.publish import BLOCK
from ladder.commands.results import read_climb
from ladder.commands.tables import cells, titles
from ladder.files import git
from ladder.log import pairs_line, step_line

LOGS = ROOT / "logs"
HERE = "2026-11-21-amd-epyc-2-threads"
CLIMB, ABLATION, NEGATIVE, EXAMPLES, PROFILE, KEPT_SCRIPT = (
    LOGS / f"{HERE}-{name}"
    for name in ("climb", "ablate", "beyond-negative", "examples", "profile", "keep-memory")
)
STEPS, WARMUP = 9, 3
NEEDS_HISTORY = pytest.mark.skipif(
    git("cat-file", "-e", "d2d72edfc0b7^{commit}").returncode != 0,
    reason="this checkout lacks the commit of the published climb",
)
EVIL = '</script><script>alert(1)</script><img src=x onerror=alert(1)>"&'


def fabricate(folder, times, *, kind="climb", repeats=3, logged=None, failures=(), **run):
    """A climb's folder in which scripts (by stem) took `times` milliseconds a step.

    Their first step, with the compilation, took twenty times as long.
    """
    folder.mkdir(parents=True)
    facts = {
        "kind": kind, "started": "2026-11-21 10:00", "repeats": repeats, "failures": dict(failures),
        "flags": [f"--steps={STEPS}"], "data": "/home/someone/texts", "peak_flops": 4e12,
        "peak_dtype": "bfloat16", "scripts": [f"{stem}.py" for stem in times],
        "system": "Linux", "cores": 2, "clocks": {}, "versions": {"torch": "2.13.0"},
    }  # fmt: skip
    (folder / "climb.json").write_text(json.dumps(facts))
    run = {"commit": "unknown", "torch": "2.13.0", "device": "Test GPU", "model": "gpt2"} | run
    run = {"data": "topics", "B": 4, "T": 256, "steps": STEPS, "seed": 1} | run
    for stem, repeat in product(times, range(repeats if logged is None else logged)):
        if not (ms := times[stem]):
            continue
        lines = [pairs_line("run", {"script": f"{stem}.py", **run})]
        for step in range(STEPS):
            dt = ms / 1e3 * (1 + repeat / 1e3) * (20 if step == 0 else 1 + step % 3 / 500)
            lines.append(step_line(step, STEPS, loss=11 - step / 4, dt=dt, tok_per_s=1024 / dt))
        lines.append(pairs_line("effective", {"matmul": "highest(setting)", "compiled": "no"}))
        lines.append(pairs_line("mfu", {"flops_per_token": 1000000000, "peak_flops": "unknown"}))
        result = {
            "warmup_steps": WARMUP, "measured_steps": STEPS - WARMUP, "peak_bytes": 3_000_000_000,
            "first_step_ms": 20 * ms, "first_loss": 11.0, "final_loss": 9.0,
        }  # fmt: skip
        text = "\n".join([*lines, f"RESULT {json.dumps(result)}\n"])
        (folder / f"{stem}.r{repeat + 1}.log").write_text(text, encoding="utf-8")
    return folder


from_logs = cache(gather.gather)


def gathered(folder):
    """gather(folder), for what is published only once: it takes a second or two."""
    return deepcopy(from_logs(folder)) if folder.is_relative_to(LOGS) else gather.gather(folder)


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    """make(*words): the status, the climbs on the page and what was printed; away from runs/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "gather", gathered)

    def run(*words, out=tmp_path / "page.html"):
        status = main(["report", *map(str, words), "--out", str(out)])
        text = out.read_text(encoding="utf-8") if status == 0 else ""
        found = re.search(r' id="data">(.*?)</script>', text, re.DOTALL)
        return status, found and json.loads(found[1])["climbs"], "".join(capsys.readouterr())

    return run


def fails(done, words):
    """Whether `done`, what make() returned, is one line with these words, and no page."""
    status, climbs, printed = done
    return (status, climbs, printed.count("\n")) == (2, None, 1) and words in printed


# ------------------------------------------------------------------------------ what goes in


def test_a_fresh_clone_shows_the_climbs_of_the_readme(make, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = [m["folder"] for m in BLOCK.finditer(text) if m["folder"] != "none"]
    status, climbs, printed = make()
    assert status == 0 and [climb["folder"] for climb in climbs] == named
    assert all(f"{folder}: " in printed for folder in named)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    # The newest climb that is not published comes along.
    for number, name in enumerate(("climb-3", "climb-2"), 1):
        folder = fabricate(tmp_path / "runs" / name, {"baseline": 20, "01_weight_tying": 18})
        os.utime(folder / "climb.json", (number, number))
    shutil.copytree(CLIMB, tmp_path / "runs" / "climb-1")
    fabricate(tmp_path / "runs" / "climb-4", {"baseline": 1}, logged=0)  # nothing in it yet
    _, climbs, _ = make()
    assert [climb["folder"] for climb in climbs] == [*named, "climb-2"]
    (tmp_path / "runs" / "climb-2" / "baseline.r1.log").write_text("no log")
    _, climbs, printed = make()
    assert [climb["folder"] for climb in climbs] == named
    assert "left out: " in printed and "is not a log of this ladder" in printed


def test_an_ablation_stands_beside_the_climb_of_its_settings_and_peers_alone(make, tmp_path):
    times = {"10_fused_adamw": 10, "without_01_weight_tying": 11}
    other = fabricate(tmp_path / "other", times, kind="ablate")
    again = shutil.copytree(ABLATION, tmp_path / "again" / ABLATION.name)
    times = {"transformers": 15, "baseline": 40, "10_fused_adamw": 12, "12_causal_blocks": 10}
    peers = fabricate(tmp_path / "peers", times, kind="peers")
    _, climbs, printed = make(CLIMB, ABLATION, other, again, peers)
    # A second one of the same climb is not hidden behind the first; peers are no climb to it.
    assert [climb["beside"] for climb in climbs] == [None, CLIMB.name, None, None, None]
    assert f"(beside {CLIMB.name})" in printed
    assert [row["against"] for row in climbs[2]["rows"]] == [None, "10_fused_adamw"]
    # Two of one name have addresses of their own.
    ids = [CLIMB.name, ABLATION.name, "other", f"{ABLATION.name}-2", "peers"]
    assert [climb["id"] for climb in climbs] == ids
    assert climbs[4]["label"].endswith(": beside transformers")
    rows = climbs[4]["rows"]
    assert not any(row["diff"] or row["beyond"] for row in rows)  # as in the tables
    gains = [row["gain"] and round(row["gain"]["ratio"], 2) for row in rows]
    assert gains == [None, 0.38, 1.25, 1.5]


@NEEDS_HISTORY
def test_diffs_are_of_the_scripts_as_measured(tmp_path, monkeypatch):
    climb, kept = (gathered(one)["rows"] for one in (CLIMB, KEPT_SCRIPT))
    assert climb[5]["source"] == "at commit d2d72edfc0b7"
    assert [line for line in climb[5]["diff"] if line[0] in "+-"] == [
        "+        model = torch.compile(model)"
        "  # speedup 05: fuses the elementwise chains between matmuls"
    ]
    assert dict(climb[1]["doc"])["Numerics"].startswith("changes the function")
    assert kept[1]["source"] == "kept beside its logs"
    assert any(line.startswith("+") and "mallopt" in line for line in kept[1]["diff"])
    times = {"baseline": 20, "01_weight_tying": 19, "mine": 18}
    commit = f"--output={tmp_path}/stolen"  # were it given to git
    _, tying, mine = gathered(fabricate(tmp_path / "lost", times, commit=commit))["rows"]
    assert not list(tmp_path.glob("stolen*")) and tying["diff"]
    assert tying["source"].startswith("as it is in this checkout now: what ran, commit --output")
    assert mine["diff"] is None and mine["source"].startswith("the script is not here")
    # Of an ablation whose scripts are not kept they are made again.
    monkeypatch.setattr(ablate, "source_at", lambda *w: f"asked = {w}\n", raising=False)
    times = {"10_fused_adamw": 10, "without_05_torch_compile": 11}
    made = fabricate(tmp_path / "made", times, kind="ablate", commit="d2d72edfc0b7")
    _, without = gathered(made)["rows"]
    assert without["source"] == "made again from the scripts at commit d2d72edfc0b7"
    assert "+asked = ('d2d72edfc0b7', 'without_05_torch_compile')" in without["diff"]


def test_a_profile_is_shown_where_device_versions_and_sizes_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {row["stem"]: row["profile"] for row in gathered(CLIMB)["rows"] if row["profile"]}
    assert found["10_fused_adamw"]["folder"] == f"logs/{PROFILE.name}"  # the newer one of two
    assert found["09_cosine_lr"]["folder"] == f"logs/{EXAMPLES.name}"
    own = tmp_path / "runs" / "profile-20261121-100000"  # as `ladder profile` leaves it
    own.mkdir(parents=True)
    text = (EXAMPLES / "10_fused_adamw.json").read_text().replace("2e93aea66793", "d2d72edfc0b7")
    (own / "10_fused_adamw.json").write_text(text)
    (own / "list.json").write_text("[1]")
    assert gather.gather(CLIMB)["rows"][-1]["profile"]["commit"] == "d2d72edfc0b7"
    other = fabricate(tmp_path / "other", {"baseline": 20, "10_fused_adamw": 10})
    assert gather.gather(other)["rows"][-1]["profile"] is None


def test_the_foot_says_how_to_measure_it_again(tmp_path):
    own = fabricate(tmp_path / "own", {"baseline": 20, "my_idea": 18}, data="my texts")
    climbs = [gathered(folder) for folder in (CLIMB, ABLATION, NEGATIVE, own)]
    peers = gathered(fabricate(tmp_path / "peers", {"transformers": 15}, kind="peers"))
    assert peers["foot"]["Again"] == "ladder peers --repeats 3 --steps=9 --data topics"
    names = ("13_sigmoid_gelu", "14_linear_cross_entropy", "15_max_autotune")  # never in speedups/
    tried = " ".join(f"logs/{NEGATIVE.name}/{name}.py" for name in names)
    ten = "1 2 3 4 5 6 7 8 9 10"
    assert [climb["foot"]["Again"] for climb in climbs] == [
        f"git checkout d2d72edfc0b7 && ladder climb 0 {ten} --repeats 3 --steps=9",
        f"git checkout 2e93aea66793 && ladder ablate {ten} --repeats 3 --steps=9",
        f"git checkout 68d2a9a5f60e && ladder climb 12 {tried} --repeats 6 --steps=9",
        "ladder climb 0 own/my_idea.py --repeats 3 --steps=9 --data 'my texts'",
    ]
    foot = climbs[0]["foot"]
    assert foot["Clocks"] == "before: 2596 MHz, 2596 MHz, after: 2596 MHz, 2596 MHz"
    assert foot["Steps"] == "3 for warm-up, left out; 6 measured in each run"
    assert "/home/someone" not in json.dumps(climbs)


def test_a_climb_under_way_and_one_of_a_single_round(tmp_path):
    times = {"baseline": 20, "01_weight_tying": None}
    first = gathered(fabricate(tmp_path / "a", times, logged=1, failures={"baseline.r2": "no!"}))
    assert first["progress"] == "Not finished: 2 of 6 runs are in."
    assert first["foot"]["Failed"] == "baseline.r2: no!"
    assert first["rows"][1]["cells"][:2] == ["01 weight tying", "not run yet"]
    times = {"baseline": 20, "01_weight_tying": 18}
    second = gathered(fabricate(tmp_path / "b", times, repeats=1))
    assert second["progress"] is None
    assert (second["rows"][1]["gain"], second["rows"][1]["cells"][4]) == (None, "single run")


def test_a_page_stays_under_its_size(make, tmp_path, monkeypatch):
    folder = fabricate(tmp_path / "big", {"baseline": 20, "01_weight_tying": 18}, repeats=9)
    assert [len(row["logs"]) for row in make(folder)[1][0]["rows"]] == [9, 9]
    page = (tmp_path / "page.html").read_bytes()
    assert b"To keep the page small" not in page
    monkeypatch.setattr(report, "LARGEST", len(page))
    assert [len(row["logs"]) for row in make(folder)[1][0]["rows"]] == [1, 1]
    page = (tmp_path / "page.html").read_bytes()
    assert b"To keep the page small, only the first run's." in page
    monkeypatch.setattr(report, "LARGEST", 1000)
    assert fails(make(folder), "is over 1,000 bytes: name fewer folders")
    assert (tmp_path / "page.html").read_bytes() == page
    monkeypatch.setattr(gather, "POINTS", 4)
    assert [step for step, _, _ in gathered(folder)["rows"][0]["loss"]] == [1, 4, 7, 9]


# ------------------------------------------------------------------------------ mistakes


def test_a_folder_without_a_climb(make, tmp_path, monkeypatch):
    failed = fabricate(tmp_path / "failed", {"baseline": None}, failures={"baseline.r1": "memory"})
    listed, bare, nan = (fabricate(tmp_path / name, {"baseline": 2}) for name in ("l", "b", "n"))
    (listed / "climb.json").write_text("[1]")
    (bare / "climb.json").unlink()
    log = nan / "baseline.r1.log"
    log.write_text(re.sub(r"loss [\d.]+", "loss nan", log.read_text()))
    for folder, words in (
        (EXAMPLES, "is not a log of a climb"),
        (tmp_path / "no_such", "no_such holds no logs of a climb"),
        (failed, "none of its runs has ended well"),
        (listed, "is no climb of this ladder"),
        (bare, "is no climb of this ladder"),
        (nan, "no finite number"),
    ):
        assert fails(make(folder), words), folder
    monkeypatch.setattr(report, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("nothing yet")
    assert fails(make(), "error no climb in logs/ or runs/: run")


def test_only_a_page_of_its_own_is_replaced_and_opened(make, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(report.webbrowser, "open", opened.append)
    page = tmp_path / "page.html"
    page.write_text("<html>my holidays</html>")
    assert fails(make(CLIMB, "--open"), "is no page of ladder report: choose another --out")
    assert page.read_text() == "<html>my holidays</html>"
    page.write_text(f"{report.MARKER} old news")
    assert make(CLIMB)[0] == 0 and "old news" not in page.read_text()
    assert opened == []
    make(CLIMB, "--open")
    assert opened == [page.as_uri()]


@pytest.mark.parametrize("out", ["no/such/folder/page.html", ".", f"{__file__}/page.html"])
def test_a_page_that_cannot_be_written(make, tmp_path, out):
    assert fails(make(CLIMB, out=out), "error cannot write ")
    assert not list(tmp_path.iterdir())


def test_the_page_is_installed_with_the_package_and_needs_no_torch():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"report.{suffix}"' in text for suffix in ("html", "css", "js"))
    code = "import sys, ladder.commands.report; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


# ------------------------------------------------------------------------------ in the browser


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium, driven through its own chromedriver: nothing is downloaded."""
    found = [find_spec("selenium"), *map(shutil.which, ("chromium", "chromedriver"))]
    if not all(found):
        stop = pytest.fail if "LADDER_BROWSER" in os.environ else pytest.skip
        stop("needs selenium, chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = found[1]
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=found[2])
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of the published climb with its ablation; and one of climbs made up.

    Two of them compare, one has a failure, and what a villain wrote is in the last two.
    """
    folder = tmp_path_factory.mktemp("pages")
    times = {"baseline": 20, "01_weight_tying": 16, "10_fused_adamw": 10, "11_more": 8}
    first = fabricate(folder / "first", times, device="NVIDIA H100 80GB HBM3")
    why = {f"01_weight_tying.r{k}": f"out of memory {EVIL}" for k in (1, 2, 3)}
    times = {"baseline": 400, "01_weight_tying": None, "02_tf32": 100, "10_fused_adamw": 80}
    second = fabricate(folder / "second", times, failures=why, device="AMD EPYC")
    third = fabricate(folder / "third", {"baseline": 30, "01_weight_tying": 15})
    evil = {"baseline": 20, 'ev"il&<b>': 10}
    fourth = fabricate(folder / "fourth <b>&", evil, data=EVIL, device=f"GPU {EVIL}")
    docs = f"00 evil\n\nChange: {EVIL}\nWhy: {EVIL}\nNumerics: {EVIL}\nRun: {EVIL}\n"
    (fourth / "baseline.py").write_text(f'"""{docs}"""\na = 1\n', encoding="utf-8")
    (fourth / 'ev"il&<b>.py').write_text(f"'''{EVIL}'''\nb = '{EVIL}'\n", encoding="utf-8")
    shown = {"own": (CLIMB, ABLATION), "made_up": (first, second, third, fourth)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "gather", gathered)
        for name, climbs in shown.items():
            assert main(["report", *map(str, climbs), "--out", str(folder / f"{name}.html")]) == 0
    return folder


class Page:
    """What the tests do in a page and ask of it."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def open(self, name, address="", scheme="light"):
        self.resize(1200)
        self.emulate("", scheme)
        self.driver.get("about:blank")
        self.driver.get((self.folder / f"{name}.html").as_uri() + address)

    def resize(self, width):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def emulate(self, media, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        media = {"media": media, "features": features}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def js(self, code, *arguments):
        return self.driver.execute_script(f"return {code}", *arguments)

    def each(self, selector, code):
        """What `code` says of each such element, `one`."""
        return self.js(
            f"[...document.querySelectorAll(arguments[0])].map((one) => {code})", selector
        )

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.one(selector).text

    def press(self, *keys):
        from selenium.webdriver import Keys

        for key in keys:
            self.driver.switch_to.active_element.send_keys(getattr(Keys, key))

    def wait_for(self, selector):
        """A new address is followed a moment after it is set. Returns the first such element."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 5, 0.02).until(lambda _: self.all(selector))[0]

    def bars(self):
        """The length of each bar that is drawn, by the stem of its script."""
        box = "one.getBoundingClientRect().width"
        return dict(self.each(".bar .fill", f"[one.closest('.bar').dataset.stem, {box}]"))


@pytest.fixture
def page(chromium, pages):
    """The browser. After each test: no word in its console, no request but for the file itself."""
    yield Page(chromium, pages)
    assert chromium.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    assert sent and all(url.startswith(("file:", "data:", "about:")) for url in sent), sent


def test_bars_as_long_as_their_numbers_and_the_tables_of_the_readme(page):
    page.open("own")
    rows = gathered(CLIMB)["rows"]
    left = "arguments[0].getBoundingClientRect().left"
    for metric in ("mfu", "memory", "tok"):
        page.one(f"#metrics label:has([value={metric}])").click()
        drawn, bounded = page.bars(), metric != "memory"
        scale = [drawn[row["stem"]] / row[metric][0] for row in rows]
        assert max(scale) == pytest.approx(min(scale), rel=1e-3) and min(scale) > 0
        assert len(page.all(".bar .whisker")) == 11 * bounded
        assert len(page.all("#bars .limit")) == bounded
        if bounded:
            end, start = (page.js(left, page.one(f"#bars {one}")) for one in (".limit", ".fill"))
            peak = gathered(CLIMB)["limit"][metric]
            assert (end - start) / peak == pytest.approx(scale[0], rel=1e-3)
            assert "all FLOPs at matmul peak: " in page.text("#bars")
    both = [row for folder in (CLIMB, ABLATION) for row in read_climb(folder)[1]]
    shown = page.each("#tables tbody tr", "[...one.cells].map((cell) => cell.textContent)")
    assert shown == [cells(row, titles()) for row in both]


@NEEDS_HISTORY
def test_a_click_opens_a_rung_with_its_docstring_diff_profile_and_logs(page):
    page.open("own")
    assert not page.one("#rung").is_displayed()
    page.one(".bar[data-stem='10_fused_adamw'] .fill").click()
    assert page.wait_for("#rung h2:focus").text == "10 fused AdamW"
    assert page.js("location.hash") == f"#{CLIMB.name}/10_fused_adamw"
    facts = json.loads((PROFILE / "10_fused_adamw.json").read_text())
    kernel = facts["kernels"][0]
    for words in (
        "the optimizer updates all parameters in one fused kernel.",
        "rounding. The same formula, evaluated in another order.",
        gathered(CLIMB)["rows"][10]["cells"][4],
        "optimizer: fused",
        "Both scripts at commit d2d72edfc0b7.",
        f"logs/{PROFILE.name}, commit 503d992a5313",
        f"backward\n{facts['median_ms']['backward']:.1f} ms",
        f"aten::mm {kernel['ms']:.1f} {kernel['share']:.1%} {kernel['calls']}",
    ):
        assert words in page.text("#rung")
    removed, added = (page.one(f"#rung > .scroll .{kind}") for kind in ("del", "add"))
    assert [one.text.split()[:2] for one in (removed, added)] == [["163", "−"], ["163", "+"]]
    assert "fused=True" in added.text and removed.rect["y"] == added.rect["y"]  # side by side
    grounds = [one.value_of_css_property("background-color") for one in (removed, added)]
    assert len({*grounds, "rgba(0, 0, 0, 0)"}) == 3
    summaries = page.all("#rung > details summary")
    assert [one.text for one in summaries[:3]] == [f"10_fused_adamw.r{k}.log" for k in (1, 2, 3)]
    summaries[0].click()
    assert page.text("#rung pre") == (CLIMB / "10_fused_adamw.r1.log").read_text().strip()
    page.one("#rung .left-out summary").click()
    for words in (gathered(ABLATION)["rows"][10]["cells"][4], "Change against 10 fused AdamW"):
        assert words in page.text("#rung .left-out")
    page.resize(700)  # the two blocks of the diff stand one above the other
    assert removed.rect["y"] + removed.rect["height"] == pytest.approx(added.rect["y"], abs=1)
    assert removed.rect["x"] == added.rect["x"]


def test_the_keyboard_reaches_and_opens_a_rung(page):
    page.open("own")
    for _ in range(30):
        page.press("TAB")
        if page.all("[data-stem='03_bf16_autocast']:focus"):
            break
    focused = page.driver.switch_to.active_element
    assert focused.get_attribute("aria-label") == "03 bf16 autocast: Tokens per second 543"
    assert focused.value_of_css_property("outline-width") == "3px"
    page.press("ENTER")
    assert page.wait_for("#rung h2:focus").text == "03 bf16 autocast"
    page.press("TAB", "TAB", "ENTER")  # next
    page.wait_for("[data-stem='04_residual_scaling'].open")
    page.press("TAB", "TAB", "TAB", "ENTER")  # close
    page.wait_for("#one:has(#rung[hidden]) [data-stem='04_residual_scaling']:focus")
    page.press("SPACE")
    assert page.wait_for("#rung h2:focus").text == "04 residual scaling"
    page.one("[data-stem='04_residual_scaling']").click()  # again: it closes
    page.wait_for("#rung[hidden]")


def test_gains_stand_side_by_side_and_hollow_within_the_noise(page):
    page.open("own")
    inks = page.each(".track .dot", "getComputedStyle(one).fill")
    filled = [luminance(ink) < 1 for ink in inks]  # not as white as the page
    both = zip(*(gathered(folder)["rows"][1:] for folder in (CLIMB, ABLATION)), strict=True)
    rows = [row for pair in both for row in pair]
    assert filled == [not row["gain"]["noise"] for row in rows] and {*filled} == {True, False}
    said = [one.text for one in page.all("#gains .said")]
    assert said == [row["cells"][4].partition(" (")[0] for row in rows]
    assert "commit 2e93aea66793" in page.text("#gains figcaption")


def test_losses_are_read_at_the_pointer_and_with_keys(page):
    from selenium.webdriver import ActionChains

    def shown(key=None, axis=None):
        """Where the losses are read and what they are, after a choice and a key."""
        if axis:
            page.one(f"#axes label:has([value={axis}])").click()
        if key:
            page.js("document.getElementById('at').focus()")
            page.press(key)
        return page.text("#curves .cursor"), [node.text for node in page.all("#readout .value")]

    page.open("own")
    logs = [min(row.logs.items())[1] for row in read_climb(CLIMB)[1]]
    losses = [[f"{log.steps[k]['loss']:.4f}" for log in logs] for k in range(STEPS)]
    assert len(page.all("#curves .curve")) == 11 and shown() == ("step 9", losses[8])
    ActionChains(page.driver).move_to_element(page.one("#curves")).perform()
    assert shown() == ("step 5", losses[4]) and shown("ARROW_LEFT") == ("step 4", losses[3])
    said = page.one("#at").get_attribute("aria-valuetext")
    assert said.startswith(f"step 4: 00 baseline {losses[3][0]}, 01 weight")
    assert shown("HOME") == ("step 1", losses[0])
    firsts = [log.steps[0]["dt"] for log in logs]
    ends = [sum(step["dt"] for step in log.steps) for log in logs]
    assert shown(axis="time")[0] == f"{max(ends):.1f} s"
    where, values = shown("HOME")
    assert where == f"{min(firsts):.1f} s"
    assert values.count("–") == 10  # the other first steps had not ended
    warm = max(end - first for end, first in zip(ends, firsts, strict=True))
    assert shown(axis="warm")[0] == f"{warm:.1f} s"
    page.all("#readout button")[3].click()
    assert len(page.all("#curves .curve[aria-pressed=true]")) == 1


def test_climbs_are_chosen_and_only_their_gains_compared(page):
    page.open("made_up")
    options = page.all("#climb option")
    assert len(options) == 5 and options[-1].text == "Compare the gains of all climbs"
    assert "NVIDIA H100 80GB HBM3" in page.text("#caption") and len(page.bars()) == 4
    marks = ("[data-stem='10_fused_adamw']", "#bars .beyond", "[data-stem='11_more']")
    tops = [page.one(mark).rect["y"] for mark in marks]
    assert tops == sorted(tops) and len(page.all("#bars .beyond")) == 1
    lines = [line.text.split(" ")[0] for line in page.all("#tables tbody tr")]
    assert lines == ["00", "01", "10", "beyond", "11_more"]
    options[1].click()
    page.wait_for("[data-stem='02_tf32']")
    assert page.js("location.hash") == "#second" and "AMD EPYC" in page.text("#caption")
    assert [*page.bars()] == ["baseline", "02_tf32", "10_fused_adamw"]
    assert "failed: out of memory </script>" in page.text("#tables")
    options[-1].click()
    compared = page.wait_for("#compare:not([hidden])").text
    assert not page.one("#one").is_displayed() and page.js("location.hash") == "#compare"
    # Over different rows above, two gains of one rung are not one comparison.
    assert [re.sub(r" \(\S+ … .*?\)", "", row.text) for row in page.all("#compare tbody tr")] == [
        "01 weight tying +25.0 % – +100.0 % –",
        "02 TF32 – – – –",
        "10 fused AdamW (over 01 weight tying) +60.0 % – – –",
        "10 fused AdamW (over 02 TF32) – +25.0 % – –",
        'ev"il&<b> – – – +100.0 %',
        "11_more +25.0 % – – –",
    ]
    assert compared.startswith("Milliseconds") and not re.search(r"tok/s| ms", compared)
    assert len(page.all("#compare .track .dot")) == 6
    assert "Test GPU" in page.text("footer") and "AMD EPYC" in page.text("footer")


def test_addresses_open_and_what_a_villain_wrote_is_shown_as_text(page):
    fourth = "#fourth%20%3Cb%3E%26"
    for address, selector, words in (
        (fourth, "#caption", EVIL),
        (fourth, "#climb", EVIL),
        (fourth, "footer", EVIL),
        (f"{fourth}/baseline", "#rung", f"Change{EVIL}"),
        (f"{fourth}/ev%22il%26%3Cb%3E", "#rung", f"b = '{EVIL}'"),
        ("#second/01_weight_tying", "#rung", f"failed: out of memory {EVIL}"),
        ("#compare", "#compare", EVIL),
    ):
        page.open("made_up", address)  # an alert would raise UnexpectedAlertPresentException
        assert words in page.one(selector).get_attribute("textContent")
        assert page.js("[document.scripts.length, document.images.length]") == [2, 0]
        assert not page.all("b")
    # Addresses that name nothing show the first climb.
    for address in ("#no/such", "#%E0%A4%A", f"#{CLIMB.name}/99_none"):
        page.open("own", address)
        assert len(page.bars()) == 11 and not page.one("#rung").is_displayed()


@pytest.mark.parametrize("address", ["", f"#{CLIMB.name}/10_fused_adamw", "#compare"])
def test_a_phone_scrolls_no_page_sideways(page, address):
    page.open("made_up" if address == "#compare" else "own", address)
    wide = page.bars()
    page.resize(360)
    assert page.js("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    for box in page.each(".chart *", "one.getBoundingClientRect().toJSON()"):
        assert not box["width"] or (box["left"] >= 0 and box["right"] <= 360), box
    assert all(length < wide[stem] for stem, length in page.bars().items())
    for name, track in zip(page.all(".row .name"), page.all(".row .lane:first-child"), strict=True):
        assert name.rect["y"] + name.rect["height"] <= track.rect["y"] + 1  # it stands above
        assert name.rect["x"] == track.rect["x"]


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(page, scheme):
    page.open("own", f"#{CLIMB.name}/10_fused_adamw", scheme=scheme)
    pairs = page.js(
        """[...document.querySelectorAll('body *')].filter((one) =>
             [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
             && one.getClientRects().length && !one.disabled).map((one) => {
               let ground = one;
               const of = (node) => getComputedStyle(node).backgroundColor;
               while (of(ground) === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
               return [getComputedStyle(one).color, of(ground), one.textContent.slice(0, 30)];
             })"""
    )
    assert len(pairs) > 200
    for ink, ground, text in pairs:
        dark, light = sorted((luminance(ink), luminance(ground)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground, text)
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) < 0.05) == (scheme == "dark")


def test_paper_gets_light_colours_and_all_details(page):
    page.open("own", f"#{CLIMB.name}/10_fused_adamw")
    page.emulate("print", "dark")
    assert luminance(page.js("getComputedStyle(document.body).backgroundColor")) == 1
    assert all(page.js("arguments[0].checkVisibility()", log) for log in page.all("#rung pre"))
    assert not page.one("#climb").is_displayed() and page.one("#tables").is_displayed()
