"""`ladder report`: what goes into the page, and the page itself in a real headless Chromium.

The tests that open it are skipped where there is no chromium with its chromedriver; where
LADDER_BROWSER is set, as .ci/run does, a missing browser is a failure.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from itertools import product

import pytest
from conftest import ROOT

from ladder.__main__ import main
from ladder.commands import gather, page, report
from ladder.commands.limits import LABELS
from ladder.commands.results import Gain, read_climb
from ladder.commands.scripts import candidate_scripts, select
from ladder.commands.tables import cells, columns
from ladder.files import git
from ladder.log import pairs_line, step_line, warmup_steps

LOGS = ROOT / "logs"
HERE = "2026-11-21-amd-epyc-2-threads"
CLIMB, ABLATION, NEGATIVE, EXAMPLES, PROFILE, KEPT_SCRIPT = (
    LOGS / f"{HERE}-{name}"
    for name in ("climb", "ablate", "beyond-negative", "examples", "profile", "keep-memory")
)
STEPS = 9
NEEDS_HISTORY = pytest.mark.skipif(
    git("cat-file", "-e", "d2d72edfc0b7^{commit}").returncode != 0,
    reason="this checkout lacks the commit of the published climb",
)
gathered = cache(gather.gather)  # what is published takes a second or two
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"&'"


def fabricate(folder, times, *, kind="climb", repeats=3, logged=None, failures=(), **run):
    """A climb's folder in which scripts (by stem) took `times` milliseconds a step.

    Their first step, with the compilation, took twenty times as long.
    """
    folder.mkdir(parents=True)
    run = {"commit": "unknown", "torch": "2.13.0", "device": "Test GPU", "model": "gpt2"} | run
    run = {"data": "topics", "B": 4, "T": 256, "steps": STEPS, "seed": 1} | run
    warmup, losses = warmup_steps(run["steps"]), [11 - k / 4 for k in range(run["steps"])]
    facts = {
        "kind": kind, "started": "2026-11-21 10:00", "repeats": repeats, "failures": dict(failures),
        "commit": run["commit"],
        "flags": [f"--steps={STEPS}"], "data": "/home/someone/texts", "peak_flops": 4e12,
        "peak_dtype": "bfloat16", "scripts": [f"{stem}.py" for stem in times],
        "system": "Linux", "cores": 2, "clocks": {}, "versions": {"torch": "2.13.0"},
        "device": run["device"], "memory_gib": 2.5 if kind == "fit" else None,
    }  # fmt: skip
    (folder / "climb.json").write_text(json.dumps(facts))
    for stem, repeat in product(times, range(repeats if logged is None else logged)):
        if not (ms := times[stem]):
            continue
        lines = [pairs_line("run", {"script": f"{stem}.py", **run})]
        for step in range(run["steps"]):
            dt = ms / 1e3 * (1 + repeat / 1e3) * (20 if step == 0 else 1 + step % 3 / 500)
            lines.append(step_line(step, STEPS, loss=losses[step], dt=dt, tok_per_s=1024 / dt))
        lines.append(pairs_line("effective", {"matmul": "highest(setting)", "compiled": "no"}))
        lines.append(pairs_line("mfu", {"flops_per_token": 1000000000, "peak_flops": "unknown"}))
        result = {
            "status": "ok", "peak_bytes": 3_000_000_000,
            "warmup_steps": warmup, "measured_steps": run["steps"] - warmup,
            "first_step_ms": 20 * ms * (1 + repeat / 1e3), "tok_per_s": 1024 / ms,
            "first_loss": losses[0], "final_loss": losses[-1],
        }  # fmt: skip
        text = "\n".join([*lines, f"RESULT {json.dumps(result)}\n"])
        (folder / f"{stem}.r{repeat + 1}.log").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    """make(*words): the status, the climbs on the page and what was printed; away from runs/."""
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(report, "page", lambda *words: seen.append(words[0]) or page.page(*words))

    def run(*words, out=tmp_path / "page.html"):
        seen.clear()
        status = main(["report", *map(str, words), "--out", str(out)])
        return status, seen[-1] if status == 0 else None, "".join(capsys.readouterr())

    return run


def fails(done, words):
    """Whether `done`, what make() returned, is one line with these words, and no page."""
    status, climbs, printed = done
    return (status, climbs, printed.count("\n")) == (2, None, 1) and words in printed


def folders(done):
    return [climb["folder"] for climb in done[1]]


# ------------------------------------------------------------------------------ what goes in


def test_unasked_the_newest_of_each_kind_come_first_then_the_published(make, tmp_path):
    known = folders(make())
    assert known[0] == "logs/2026-11-21-amd-epyc-2-threads-climb-3"  # as in README.md
    kinds = [gathered(ROOT / folder)["kind"].what for folder in known]
    assert {*kinds} == {"the climb", "one optimisation left out", "beside transformers"}
    assert f"logs/{ABLATION.name}" not in known  # RUNLOG.md has a newer one
    assert f"logs/{NEGATIVE.name}" not in known
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    times = {"baseline": 20, "01_weight_tying": 18}
    for number, name in enumerate(("climb-3", "climb-2", "ablate-1"), 1):
        kind = name.partition("-")[0]
        folder = fabricate(tmp_path / "runs" / name, times, kind=kind)
        os.utime(folder / "climb.json", (number, number))
    shutil.copytree(CLIMB, tmp_path / "runs" / "climb-1")  # is published
    fabricate(tmp_path / "runs" / "climb-4", times, logged=0)  # nothing in it yet
    done = make()
    assert folders(done) == ["ablate-1", "climb-2", *known]
    assert done[1][1]["ablation"] is done[1][0]
    (tmp_path / "runs" / "climb-2" / "baseline.r1.log").write_text("no log")
    done = make()
    assert folders(done) == ["ablate-1", "climb-3", *known]
    assert "left out: " in done[2] and "is not a log of this ladder" in done[2]


def test_a_fifo_in_logs_is_no_climb(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    for name in ("README.md", "RUNLOG.md"):
        (tmp_path / name).touch()
    (tmp_path / "logs" / "x").mkdir(parents=True)
    os.mkfifo(tmp_path / "logs" / "x" / "climb.json")
    assert report.gather_default() == []


def test_an_ablation_belongs_to_climbs_of_its_settings(make, tmp_path):
    times = {"10_fused_adamw": 10, "without_01_weight_tying": 11}
    other = fabricate(tmp_path / "other", times, kind="ablate")
    again = shutil.copytree(ABLATION, tmp_path / "again" / ABLATION.name)
    times = {"transformers": 15, "baseline": 40, "10_fused_adamw": 12, "12_causal_blocks": 10}
    peers = fabricate(tmp_path / "peers", times, kind="peers")
    _, climbs, _ = make(CLIMB, other, ABLATION, again, peers)
    assert [climb["ablation"] for climb in climbs] == [climbs[2], None, None, None, None]
    assert climbs[3]["id"] == f"{ABLATION.name}-2"  # two of one name have two addresses
    rows = climbs[4]["rungs"]
    assert climbs[4]["beyond"] is None and not any(row["base"] for row in rows)
    assert [row["said"] for row in rows] == ["", "−62.5 %", "+25.0 %", "+50.0 %"]
    assert [row["state"] for row in rows] == ["", "down", "up", "up"]


def test_the_result_in_words(make, tmp_path):
    def said(name, times, **options):
        (climb,) = make(fabricate(tmp_path / name, times, **options))[1]
        return climb["verdict"]

    times = {"baseline": 40, "01_weight_tying": 36, "02_tf32": 12, "03_bf16_autocast": 12}
    head, sure = said("a", times)
    assert head == "3.3 times as fast as 00 baseline on Test GPU; most of it is 02 TF32"
    assert sure.startswith("The script 02 TF32 trains 85,073 tokens per second, not 25,523: 3.3 to")
    assert "Of 3 differences, gains: 2, losses: 0, not told from noise: 1 (95 %" in sure
    assert said("b", {"baseline": 20, "01_weight_tying": 20})[0].startswith("Nothing is clearly")
    assert "needs two rungs and two rounds" in said("c", times, repeats=1)[1]
    broken = {"baseline.r1": "out of memory"}
    head, sure = said("e", times | {"baseline": None}, failures=broken)
    assert head == "On Test GPU" and sure.startswith("Of 2 differences, gains: 1, losses: 0, not")
    times = {"10_fused_adamw": 10, "without_01_weight_tying": 11, "without_02_tf32": 25}
    head, _ = said("d", times, kind="ablate")
    assert head == "10 fused AdamW is 2.5 times as fast as without 02 TF32 on Test GPU"


def test_the_result_is_the_largest_gain_that_is_no_noise():
    climb = copy.deepcopy(gathered(CLIMB))
    rows = [rung["row"] for rung in climb["rungs"]]
    for row in rows[1:]:
        row.total = Gain(1.0, 0.9, 1.1, 3)
    rows[1].total, rows[2].total = Gain(1.43, 1.42, 1.44, 3), Gain(1.6, 0.8, 2.5, 2)
    rows[2].gain.rounds = 2
    head, sure = page.verdict(climb)
    assert head.startswith("1.43 times as fast as 00") and "over 2 to 3 rounds;" in sure


def test_the_spread_of_the_fastest_rung_stays_in_the_chart():
    climb = copy.deepcopy(gathered(CLIMB))
    row = max((rung["row"] for rung in climb["rungs"]), key=lambda row: row.tok_per_s)
    row.p10_ms = row.ms / 9
    drawn = page.ladder(climb)
    assert max(fast for _, fast in drawn["spreads"].values()) == 1
    assert drawn["rate"](row.tok_per_s) == 0.5  # and squeezes no bar


def test_losses_that_hardly_differ_have_marks():
    assert page.Scale([0, 2.5e-323]).ticks(5) == [(0, "0")]


@NEEDS_HISTORY
def test_diffs_are_of_the_scripts_as_measured(tmp_path, monkeypatch):
    climb, kept = (gathered(one)["rungs"] for one in (CLIMB, KEPT_SCRIPT))
    assert climb[5]["source"] == "at commit d2d72edfc0b7"
    assert [line for line in climb[5]["diff"] if line[0] in "+-"] == [
        "+        model = torch.compile(model)"
        "  # speedup 05: fuses the elementwise chains between matmuls"
    ]
    assert "Numerics: changes the function" in climb[1]["doc"]
    assert kept[1]["source"] == "kept beside its logs"
    assert any(line.startswith("+") and "mallopt" in line for line in kept[1]["diff"])
    times = {"baseline": 20, "01_weight_tying": 19, "mine": 18}
    lost = fabricate(tmp_path / "lost", times, commit="0123456789ab")
    _, tying, mine = gathered(lost)["rungs"]
    assert tying["source"].startswith("as it is in this checkout now: what ran, commit 0123456789")
    assert tying["diff"] and mine["diff"] is None
    assert mine["source"].startswith("the script is not here")
    # Of an ablation whose scripts are not kept they are made again.
    monkeypatch.setattr(gather, "source_at", lambda *words: f"asked = {words}\n")
    times = {"10_fused_adamw": 10, "without_05_torch_compile": 11}
    made = fabricate(tmp_path / "made", times, kind="ablate", commit="d2d72edfc0b7")
    _, without = gathered(made)["rungs"]
    assert without["source"] == "made again from the scripts at commit d2d72edfc0b7"
    assert "+asked = ('d2d72edfc0b7', 'without_05_torch_compile')" in without["diff"]


def test_a_profile_is_shown_where_device_versions_and_sizes_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {r["row"].stem: r["profile"] for r in gather.gather(CLIMB)["rungs"] if r["profile"]}
    assert found["10_fused_adamw"]["from"].startswith(f"logs/{PROFILE.name}")  # the newer of two
    assert found["09_cosine_lr"]["from"].startswith(f"logs/{EXAMPLES.name}")
    own = tmp_path / "runs" / "profile-20261121-100000"  # as `ladder profile` leaves it
    own.mkdir(parents=True)
    text = (EXAMPLES / "10_fused_adamw.json").read_text().replace("2e93aea66793", "d2d72edfc0b7")
    (own / "10_fused_adamw.json").write_text(text)
    for name, none in (("list", "[1]"), ("ms", '{"run": {"commit": 1}, "median_ms": []}')):
        (own / f"{name}.json").write_text(none)
    (own / "deep.json").write_text("[" * 200_000)
    (own / "large.json").write_text(re.sub(r'"ms": [\d.]+', f'"ms": {"9" * 400}', text))
    (own / "trace.json").write_text(text.replace("10_fused_adamw", "09_cosine_lr") + " " * 10**7)
    os.mkfifo(own / "fifo.json")
    nine, ten = (rung["profile"]["from"] for rung in gather.gather(CLIMB)["rungs"][-2:])
    assert "commit d2d72edfc0b7" in ten and "commit 2e93aea66793" in nine
    other = fabricate(tmp_path / "other", {"baseline": 20, "10_fused_adamw": 10})
    assert gather.gather(other)["rungs"][-1]["profile"] is None


def test_the_foot_says_how_to_measure_it_again(tmp_path):
    times = {"baseline": 20, "my_idea": None}
    why = {"my_idea.r1": "no!"}
    own = fabricate(tmp_path / "own", times, data="my texts", failures=why)
    peers = fabricate(tmp_path / "peers", {"transformers": 15}, kind="peers")
    fit = fabricate(tmp_path / "fit", {"baseline": 20}, kind="fit")
    waiting = candidate_scripts()[0].stem
    new = fabricate(tmp_path / "new", {"baseline": 20, waiting: 15}, data="tinyshakespeare")
    climbs = (CLIMB, ABLATION, NEGATIVE, own, peers, fit, new)
    feet = [gathered(folder)["foot"] for folder in climbs]
    names = ("13_sigmoid_gelu", "14_linear_cross_entropy", "15_max_autotune")  # never in speedups/
    tried = " ".join(f"logs/{NEGATIVE.name}/{name}.py" for name in names)
    ten = "1 2 3 4 5 6 7 8 9 10"
    assert [foot["Again"] for foot in feet] == [
        f"git checkout d2d72edfc0b7 && ladder climb 0 {ten} --repeats 3 --steps=9",
        f"git checkout 2e93aea66793 && ladder ablate {ten} --repeats 3 --steps=9",
        f"git checkout 68d2a9a5f60e && ladder climb 12 {tried} --repeats 6 --steps=9",
        "ladder climb 0 own/my_idea.py --repeats 3 --steps=9 --data 'my texts'",
        "ladder peers --repeats 3 --steps=9 --data topics",
        "ladder climb --fit --memory 2.5 0 --repeats 3 --steps=9 --data topics",
        f"ladder climb 0 {waiting} --candidates --repeats 3 --steps=9 --data tinyshakespeare",
    ]
    assert select(["0", waiting], candidates=True)[1] == candidate_scripts()[0]
    assert feet[0]["Clocks"] == "before: 2596 MHz, 2596 MHz, after: 2596 MHz, 2596 MHz"
    assert feet[0]["Steps"] == "3 for warm-up, left out; 6 measured in each run"
    assert feet[3]["Not finished"] == "4 of 6 runs are in" and not feet[0]["Not finished"]
    assert feet[3]["Failed"] == "my_idea.r1: no!" and "/home/someone" not in json.dumps(feet)


def test_what_is_said_below_other_tables_is_said_below_that_of_the_page(make, tmp_path):
    folder = fabricate(
        tmp_path / "odd",
        {"baseline": 20, "05_torch_compile": 18},
        failures={"baseline.r4": "killed <b>"},
    )
    path = folder / "climb.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "peaks": [1e12, 2e12]}))
    make(folder)
    text = (tmp_path / "page.html").read_text().partition("<h3>All numbers</h3>")[2]
    for words in (
        "Round 4 of 00 baseline failed; its row and gains have the others only: killed &lt;b&gt;",
        "Nothing was compiled in 05 torch.compile: is TORCH_COMPILE_DISABLE",
        "a large matmul ran at 1 TFLOP/s in one round and 2 in another",
    ):
        assert f'<p class="soft">{words}' in text


def test_long_logs_are_cut(make, tmp_path):
    times = {"baseline": 20, "01_weight_tying": 18}
    long = fabricate(tmp_path / "long", times, repeats=1, steps=2000)
    (rung, _) = make(long)[1][0]["rungs"]
    ((_, text),) = rung["logs"]
    assert text == "Longer than 100,000 bytes, see long/baseline.r1.log"
    assert [point[0] for point in rung["curve"]][:2] == [1, 8] and rung["curve"][-1][0] == 2000


# ------------------------------------------------------------------------------ mistakes


def test_what_is_no_climb(make, tmp_path, monkeypatch):
    """What a log may hold is tested with what is not fit to be published."""
    for name, of in (("bare", "climb.json"), ("cut", "baseline.r1.log"), ("fifo", "climb.json")):
        path = fabricate(tmp_path / name, {"baseline": 2}) / of
        path.write_text("") if name == "cut" else path.unlink(missing_ok=True)
        os.mkfifo(path) if name == "fifo" else None
    fabricate(tmp_path / "empty", {"baseline": 2}, B=0)
    fabricate(tmp_path / "failed", {"baseline": None}, failures={"baseline.r1": "memory"})
    mixed = fabricate(tmp_path / "mixed", {"baseline": 2}, kind="fit") / "baseline.r2.log"
    mixed.write_text(mixed.read_text().replace(" B=4 ", " B=64 "))
    names = ("no_such", "no\nsuch", "bare", "cut", "fifo", "empty", "failed", "mixed")
    for folder in [EXAMPLES, *(tmp_path / name for name in names)]:
        assert fails(make(folder), folder.name.replace("\n", r"\n")), folder
    monkeypatch.setattr(report, "ROOT", tmp_path)
    for name in ("README.md", "RUNLOG.md"):
        (tmp_path / name).write_text("nothing yet")
    assert fails(make(), "error no climb in logs/ or runs/: run")


def test_scripts_that_cannot_be_read_and_a_device_of_control_characters(make, tmp_path):
    times = dict.fromkeys(("latin", "deep", "huge", "null"), 9)
    folder = fabricate(tmp_path / "odd", times, device="\x1b[2J")
    (folder / "latin.py").write_bytes("x = 'é'".encode("latin-1"))
    (folder / "deep.py").write_text("1" + "+1" * 20_000)  # RecursionError
    (folder / "huge.py").write_text("-" * 100_000 + "1")  # MemoryError
    (folder / "null.py").write_text("x = 1\0")
    _, (climb,), printed = make(folder)
    for rung in climb["rungs"]:
        assert "cannot read" in rung["source"] and len(rung["curve"]) == STEPS
    assert "\x1b" not in printed and r"\x1b[2J" in printed


def test_only_a_page_of_its_own_is_replaced_and_opened(make, tmp_path, monkeypatch):
    opened, html = [], tmp_path / "page.html"
    monkeypatch.setattr(report.webbrowser, "open", opened.append)
    html.write_text("<html>my holidays</html>")
    assert fails(make(CLIMB, "--open"), "is not a page of ladder report: choose another --out")
    assert html.read_text() == "<html>my holidays</html>"
    html.write_text(f"{report.MARKER} old news")
    assert make(CLIMB)[0] == 0 and "old news" not in html.read_text() and not opened
    make(CLIMB, "--open")
    assert opened == [html.as_uri()]
    os.mkfifo(tmp_path / "fifo")
    for out, why in ((".", "regular"), ("fifo", "regular"), (f"{__file__}/x", "File exists")):
        assert fails(make(CLIMB, out=out), why)


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
    (fourth / "baseline.py").write_text(f"'''00 {EVIL} '''\na = 1\n", encoding="utf-8")
    (fourth / 'ev"il&<b>.py').write_text(f"b = r'''{EVIL} '''\n", encoding="utf-8")
    times = {"baseline": 1000, "10_fused_adamw": 300, "11_more": 900}
    size = {"device": "NVIDIA A100-SXM4-80GB", "B": 16, "T": 1024}
    limits = [fabricate(folder / "limits", times, **size)]
    made = {"own": (CLIMB, ABLATION), "all": (first, second, third, fourth), "limits": limits}
    for name, climbs in made.items():
        assert main(["report", *map(str, climbs), "--out", str(folder / f"{name}.html")]) == 0
    return folder


class Page:
    """What the tests do in a page and ask of it."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def open(self, name, address="", width=1200, media="", scheme="light"):
        cdp = self.driver.execute_cdp_cmd
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        cdp("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        cdp("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self.driver.get("about:blank")
        self.driver.get((self.folder / f"{name}.html").as_uri() + address)

    def js(self, code, *arguments):
        return self.driver.execute_script(f"return {code}", *arguments)

    def each(self, selector, code):
        """What `code` says of each such element, `one`, that is shown."""
        found = f"[...document.querySelectorAll('{selector}')].filter((e) => e.checkVisibility())"
        return self.js(f"{found}.map((one) => {code})")

    def shown(self, selector):
        return [one for one in self.all(selector) if one.is_displayed()]

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def choose(self, name, text):
        from selenium.webdriver.support.ui import Select

        Select(self.all(f"[name={name}]")[0]).select_by_visible_text(text)
        return self.js("document.querySelector('main > section:not([hidden])').id")


@pytest.fixture
def browser(chromium, pages):
    """The browser. After each test: no word in its console, no request but for the file itself."""
    yield Page(chromium, pages)
    assert chromium.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    assert sent and all(url.startswith(("file:", "data:", "about:")) for url in sent), sent


def test_bars_and_marks_are_as_their_numbers(browser):
    browser.open("own")
    rungs = gathered(CLIMB)["rungs"]
    widths = browser.each(".bars .bar", "one.getBoundingClientRect().width")
    scale = [width / rung["row"].tok_per_s for width, rung in zip(widths, rungs, strict=True)]
    assert max(scale) == pytest.approx(min(scale), rel=1e-2) and min(scale) > 0
    colours = browser.each(".bars .bar", "getComputedStyle(one).background")
    states = [rung["state"] for rung in rungs]
    assert len({*zip(states, colours, strict=True)}) == len({*states}) == len({*colours}) == 3
    dots = browser.each(".mark:not(.alone) .dot", "one.getBoundingClientRect().x")
    ratios = [rung["row"].gain.ratio for rung in rungs[1:]]
    assert sorted(range(10), key=dots.__getitem__) == sorted(range(10), key=ratios.__getitem__)
    assert len(browser.shown(".mark.alone .dot")) == 10
    table = browser.each("tbody tr", "[...one.cells].map((cell) => cell.textContent.trim())")
    facts, rows = read_climb(CLIMB)
    assert table == [[cells(row)[name] for name in columns(facts, rows)] for row in rows]


def test_a_limit_is_a_mark_on_its_bar_and_its_parts_are_told(browser):
    browser.open("limits", "#limits/baseline")
    rungs = gathered(browser.folder / "limits")["rungs"]
    assert [rung["row"].limit is None for rung in rungs] == [False, False, True]
    ((right, width),) = browser.js(  # that of rung 10 is too far off
        """[...document.querySelectorAll('.bars .limit')].map((one) => {
             const [bar, { right }] = [one.parentElement.children[0], one.getBoundingClientRect()];
             const { left, width } = bar.getBoundingClientRect();
             return [right - left, width];
           })"""
    )
    row = rungs[0]["row"]
    assert right / width == pytest.approx(row.ms / sum(row.limit), rel=0.02)
    (text,) = (one.text for one in browser.shown(".rung > div"))
    parts = [f"{name} {ms:.1f} ms" for name, ms in zip(LABELS, row.limit, strict=True)]
    assert f"limit {sum(row.limit):.1f} ms {' '.join(parts)}" in " ".join(text.split())
    table = browser.each("table th, tbody td:nth-child(8)", "one.textContent.trim()")
    assert table[7] == "of its limit" and table[-3:] == ["84%", "20%", "unknown"]
    assert "limit of the rung" in browser.shown(".legend")[0].text
    browser.open("own")
    assert "No limit is drawn for single rungs" in browser.shown("main")[0].text


@NEEDS_HISTORY
def test_a_rung_opens_by_mouse_keyboard_and_address(browser):
    from selenium.webdriver import Keys

    browser.open("own")
    assert not browser.shown(".rung pre")
    for _ in range(30):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.driver.switch_to.active_element
        if focused.text.startswith("10 fused AdamW"):
            break
    assert focused.value_of_css_property("outline-width") == "3px"
    focused.send_keys(Keys.ENTER)
    (body,) = browser.shown(".rung > div")
    kernel = json.loads((PROFILE / "10_fused_adamw.json").read_text())["kernels"][0]
    for words in (
        "Change: the optimizer updates all parameters in one fused kernel.",
        "optimizer: fused",
        gathered(CLIMB)["rungs"][10]["cells"]["gain"],
        f"Left out of 10 fused AdamW alone: {gathered(ABLATION)['rungs'][10]['cells']['gain']}",
        "Both scripts at commit d2d72edfc0b7.",
        f"logs/{PROFILE.name}, commit 503d992a5313",
        f"aten::mm {kernel['ms']:.1f} {kernel['share']:.1%} {kernel['calls']}",
    ):
        assert words in body.text
    (removed,), *_, added = browser.shown(".del"), *browser.shown(".add")
    assert removed.text[0] == "-" and "fused=True" in added.text
    body.find_element("css selector", "details summary").click()
    log = (CLIMB / "10_fused_adamw.r1.log").read_text()
    assert browser.shown(".rung details pre")[0].text == log.strip()
    assert browser.js("decodeURIComponent(location.hash)") == f"#{CLIMB.name}/10_fused_adamw"
    focused.click()
    assert not body.is_displayed() and browser.js("location.hash") == f"#{CLIMB.name}"
    browser.open("own", f"#{ABLATION.name}/without_02_tf32")
    assert "Change against 10 fused AdamW" in browser.shown(".rung > div")[0].text


def test_three_groups_of_losses_are_shown_until_others_are_chosen(browser):
    browser.open("own")
    assert len(browser.shown("polyline")) == 3
    names = [one.text for one in browser.shown(".curves label")]
    assert len(names) < 11 and names[0] == "00 baseline"
    logs = {row.stem: row.logs[1] for row in read_climb(CLIMB)[1]}
    one, two = ([s["loss"] for s in logs[k].steps] for k in ("01_weight_tying", "02_tf32"))
    assert one == two and any("01 weight tying, 02 TF32" in name for name in names)
    browser.shown(".curves label")[1].click()
    assert len(browser.shown("polyline")) == 4
    ends = {}
    for axis in browser.shown(".choice label"):
        axis.click()
        (chart,) = browser.shown(".chart")
        assert chart.text.endswith(axis.text)
        ends[axis.text] = float(chart.text.split()[-1 - len(axis.text.split())])
    warm = [sum(step["dt"] for step in log.steps[1:]) for log in logs.values()]
    assert STEPS - 2 < ends["steps"] <= STEPS  # the last round one
    assert ends["seconds after the first step"] <= max(warm) + 1e-6
    assert ends["seconds"] > ends["seconds after the first step"]


def test_climbs_are_chosen_by_machine_and_only_their_gains_compared(browser):
    browser.open("all")
    compare = "Compare the gains of all climbs"
    labels = [one.text for one in browser.all("[name=climb] option")]
    assert len(labels) == 5 and labels[-1] == compare
    assert browser.choose("climb", labels[1]) == "second" == browser.js("location.hash.slice(1)")
    assert "failed: out of memory </script>" in browser.shown("#second tbody")[0].text
    (beyond,) = browser.each("section:first-child .beyond", "1") or [0]
    assert not beyond and browser.choose("machine", "NVIDIA H100 80GB HBM3") == "first"
    assert len(browser.shown(".beyond")) == 1
    assert [one.is_enabled() for one in browser.all("[name=climb] option")] == [1, 0, 0, 0, 1]
    assert browser.choose("machine", "all") == "first"
    assert browser.choose("climb", compare) == "compare"
    (text,) = (one.text for one in browser.shown("main"))
    assert not re.search(r"tok/s|\d ms", text)
    # Over different rows above, two gains of one rung are not one comparison.
    lines = [re.sub(r" \(\S+ … .*?\)", "", line) for line in text.splitlines()]
    assert "01 weight tying (over 00 baseline) +25.0 % – +100.0 % –" in lines
    assert "10 fused AdamW (over 01 weight tying) +60.0 % – – –" in lines
    assert "10 fused AdamW (over 02 TF32) – +25.0 % – –" in lines


def test_what_a_villain_wrote_is_shown_as_text(browser):
    fourth = "#fourth%20%3Cb%3E%26"
    for address, words in (
        (fourth, f"GPU {EVIL}"),
        (f"{fourth}/baseline", f"00 {EVIL}"),
        (f"{fourth}/ev%22il%26%3Cb%3E", f"b = r'''{EVIL}"),
        ("#second/01_weight_tying", f"failed: out of memory {EVIL}"),
        ("#compare", EVIL),
    ):
        browser.open("all", address)  # an alert would raise UnexpectedAlertPresentException
        assert words in browser.shown("main > section")[0].get_attribute("textContent")
        assert browser.js("[document.scripts.length, document.images.length]") == [1, 0]
        assert len(browser.all("b")) == 11  # the rates
    # Addresses that name nothing show the first climb.
    for address in ("#no/such", "#%E0%A4%A", f"#{CLIMB.name}/99_none"):
        browser.open("own", address)
        assert len(browser.shown(".bars .bar")) == 11 and not browser.shown(".rung pre")


@pytest.mark.parametrize("address", ["", f"#{CLIMB.name}/10_fused_adamw", "#compare"])
def test_a_phone_scrolls_no_page_sideways(browser, address):
    browser.open("all" if address == "#compare" else "own", address, width=360)
    assert browser.js("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    wide = browser.each(".scroll", "[one.scrollWidth > one.clientWidth, one.className]")
    assert wide and all(scrolls == ("scrolls" in name) for scrolls, name in wide)
    if address != "#compare":
        for box in browser.each(".ladder *", "one.getBoundingClientRect().toJSON()"):
            assert box["left"] >= 0 and box["right"] <= 360, box
        text, drawn = (
            browser.each(s, "one.getBoundingClientRect().toJSON()")
            for s in (".row .name, .row b, .said", ".bars > *, .mark > *")
        )
        for a, b in product(text, drawn):  # nothing is struck through
            assert not (
                a["width"] and a["left"] < b["right"] and b["left"] < a["right"]
                and a["top"] < b["bottom"] and b["top"] < a["bottom"]
            ), (a, b)  # fmt: skip


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, scheme):
    browser.open("own", f"#{CLIMB.name}/10_fused_adamw", scheme=scheme)
    pairs = browser.js(
        """[...document.querySelectorAll('body *')].filter((one) =>
             [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
             && one.checkVisibility()).map((one) => {
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
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) < 0.05) == (scheme == "dark")


def test_paper_gets_light_colours_and_all_of_an_open_rung(browser):
    browser.open("own", f"#{CLIMB.name}/10_fused_adamw", media="print", scheme="dark")
    assert luminance(browser.js("getComputedStyle(document.body).backgroundColor")) == 1
    logs = browser.all("[open] details pre")
    assert len(logs) == 3 and all(browser.js("arguments[0].checkVisibility()", one) for one in logs)
    assert not browser.shown("select") and browser.shown("table")
