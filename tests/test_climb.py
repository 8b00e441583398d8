"""`ladder climb` and `publish` as a user runs them; the rule that tells a gain from noise."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from conftest import ROOT, SMALL, hear_ctrl_c, rung

from ladder.commands.results import Row, gain, read_climb, step_times
from ladder.errors import BadInput
from ladder.log import Log

FIRST_LOGS = ROOT / "logs" / "2026-11-21-amd-epyc-2-cores-first"


def ladder(*words, cwd=ROOT, env=None, **options):
    """Run the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "ladder", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def synthetic(random, scale, repeats, drift=0.05, noise=0.03):
    """A row whose runs differ by `drift` and whose steps differ by `noise`, both relative."""
    logs = {}
    for repeat in range(1, repeats + 1):
        level = scale * np.exp(random.normal(0, drift))
        times = level * np.exp(random.normal(0, noise, 14))
        steps = [{"step": i, "dt": dt} for i, dt in enumerate(times)]
        logs[repeat] = Log(run={"B": "4", "T": "256"}, steps=steps, result={"warmup_steps": 0})
    return Row("synthetic", logs)


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_two_identical_scripts_are_rarely_told_apart(repeats):
    random = np.random.default_rng(1)
    found = [
        not gain(synthetic(random, 1, repeats), synthetic(random, 1, repeats)).is_noise
        for _ in range(100)
    ]
    assert sum(found) <= 5  # where steps vary like these, fewer than the nominal 5 %: see gain()


def test_a_difference_well_above_the_noise_is_named():
    random = np.random.default_rng(2)
    found = [
        gain(synthetic(random, 1.1, 5, drift=0.01), synthetic(random, 1, 5, drift=0.01))
        for _ in range(50)
    ]
    assert sum(not one.is_noise for one in found) >= 48
    assert np.median([one.ratio for one in found]) == pytest.approx(1.1, abs=0.01)
    assert all(one.low <= one.ratio <= one.high for one in found)


def test_one_repeat_tells_nothing():
    random = np.random.default_rng(3)
    assert gain(synthetic(random, 2, 1), synthetic(random, 1, 1)) is None


@pytest.fixture(scope="module")
def climbed(shard, tmp_path_factory):
    """A climb of two rungs and scripts that crash, run out of memory and write no log."""
    folder = tmp_path_factory.mktemp("climb") / "run"
    scripts = folder.parent
    source = rung(0).read_text()
    (scripts / "crash.py").write_text(source.replace("loss.backward()", "loss.backwards()"))
    big = source.replace("model(x, y)", "model(x.repeat(10**7, 1), y)")
    (scripts / "hungry.py").write_text(big)
    (scripts / "silent.py").write_text("")
    tracked = ["git", "status", "--porcelain", "--untracked-files=no"]
    before = subprocess.run(tracked, cwd=ROOT, capture_output=True)
    words = [*SMALL, "--steps", 5, "--repeats", 2, "--data", shard, "--out", folder]
    own = (scripts / f"{name}.py" for name in ("crash", "hungry", "silent"))
    done = ladder("climb", "0-1", *own, *words)
    after = subprocess.run(tracked, cwd=ROOT, capture_output=True)
    assert before.stdout == after.stdout, "a climb must change nothing that git tracks"
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_climb_leaves_logs_facts_and_picture(climbed):
    folder, out = climbed
    assert {path.name for path in folder.glob("*.log")} == {
        f"{stem}.r{repeat}.log" for stem in ("baseline", "01_weight_tying") for repeat in (1, 2)
    }
    facts = json.loads((folder / "climb.json").read_text())
    for key in ("commit", "device", "versions", "system", "cores", "clocks", "peak_flops"):
        assert facts[key], key
    assert (folder / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert "00 baseline" in out and "01 weight tying" in out and "1 warm-up steps left out" in out


def test_a_rung_that_fails_becomes_a_row_and_the_climb_goes_on(climbed):
    folder, out = climbed
    _, rows = read_climb(folder)
    baseline, tying, crash, hungry, silent = rows
    assert baseline.failure is None and len(tying.logs) == 2
    ratios = [
        baseline.logs[k].result["median_ms"] / tying.logs[k].result["median_ms"] for k in (1, 2)
    ]
    assert tying.gain.ratio == pytest.approx(np.median(ratios), rel=1e-3)
    assert "has no attribute 'backwards'" in crash.failure and crash.gain is None
    assert hungry.failure.startswith("out of memory")
    assert "failed: out of memory" in out
    assert silent.failure == "it left 0 logs in --log-dir instead of one"


def test_climb_numbers_come_from_the_logs(climbed):
    folder, _ = climbed
    _, (baseline, *_) = read_climb(folder)
    medians = [log.result["median_ms"] for log in baseline.logs.values()]
    assert baseline.median_ms == pytest.approx(np.median(medians), abs=0.02)
    assert baseline.tok_per_s == pytest.approx(2 * 64 / baseline.median_ms * 1e3)
    facts = json.loads((folder / "climb.json").read_text())
    flops = int(baseline.logs[1].mfu["flops_per_token"])
    assert baseline.mfu == pytest.approx(flops * baseline.tok_per_s / facts["peak_flops"])
    peaks = [log.result["peak_bytes"] for log in baseline.logs.values()]
    assert baseline.peak_bytes == int(np.median(peaks))


def test_a_step_of_several_batches_counts_all_its_tokens(climbed, tmp_path):
    """As ddp_run.py's: four times the tokens in the same time are four times the rate."""
    folder = tmp_path / "climb"
    shutil.copytree(climbed[0], folder, ignore=shutil.ignore_patterns("cache"))
    _, (_, before, *_) = read_climb(folder)
    for path in folder.glob("01_weight_tying.r*.log"):
        path.write_text(path.read_text().replace(" T=64 ", " T=64 total_batch=512 "))
    _, (_, after, *_) = read_climb(folder)
    assert after.tok_per_s == pytest.approx(4 * before.tok_per_s)
    assert after.mfu == pytest.approx(4 * before.mfu)
    assert after.gain.ratio == pytest.approx(4 * before.gain.ratio)


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(shard, tmp_path):
    folder = tmp_path / "run"
    words = ["climb", "0", "1", *SMALL, "--steps", 3, "--repeats", 2, "--data", shard]
    process = subprocess.Popen(
        [sys.executable, "-m", "ladder", *map(str, words), "--out", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    while not list(folder.glob("*.r1.log")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "ladder climb --resume" in out
    kept = {path: path.read_bytes() for path in folder.glob("*.log")}
    assert 1 <= len(kept) < 4 and not list(folder.glob("tmp*"))
    done = ladder("climb", "--resume", folder)
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("*.log"))) == 4
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_logs_that_cannot_be_compared_are_refused(climbed, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(climbed[0], mixed, ignore=shutil.ignore_patterns("cache"))
    path = mixed / "01_weight_tying.r2.log"
    text = path.read_text()
    for old, new, key in ((" B=2 ", " B=3 ", "B"), (" data=topics ", " data=other ", "data")):
        path.write_text(text.replace(old, new))
        with pytest.raises(BadInput, match=f"its logs differ in {key} "):
            read_climb(mixed)
    path.write_text(text[: text.index("RESULT")])
    with pytest.raises(BadInput, match=r"01_weight_tying\.r2\.log is cut short"):
        read_climb(mixed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["climb", "99"], "there is no rung 99: they go from 0 to"),
        (["climb", "no_such.py"], "neither the number of a rung nor a script"),
        (["climb", "--resume", "/no/such"], "is no climb: it has no climb.json"),
        (["climb", "1", "--resume", "--seed", "0"], "give no rungs, seed with it"),
        (["climb", "0", "--seq-len", "1025"], "--seq-len 1025 is longer than GPT-2's 1024"),
        (["climb", "0", "--data", "/no/such"], "no such file or folder: /no/such"),
        (["climb", "0", "--seed", str(2**64)], "argument --seed: expected at most 64 bits"),
        (["climb", "0", "--device", "cuda:99"], "--device cuda:99: this PyTorch sees"),
        (["climb", "0", "--out", __file__], "cannot make the folder"),
        (["publish", "/no/such", "Nothing."], "holds no logs of a climb"),
        (["ablate", "0"], "there is no rung 0 to take back"),
    ],
)
def test_mistakes_of_users(words, message):
    done = ladder(*words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_a_climb_of_which_nothing_came_to_its_end(tmp_path):
    """Its reason is shown as it is, though rich would read [batch, time] and [/data] as markup."""
    script = tmp_path / "broken.py"
    script.write_text("raise ValueError('no tensor of [batch, time] in [/data]')\n")
    done = ladder("climb", script, "--repeats", 1, "--out", tmp_path / "[/run]")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    words = "failed: ValueError: no tensor of [batch, time] in [/data]"
    told, table = done.stdout.split(" rung ", 1)
    assert words in told and words in " ".join(table.split())
    assert f"climb.json and what the runs said: {tmp_path}/[/run]" in table


@pytest.fixture
def copy_of_the_project(tmp_path):
    """A copy to publish into, and a climb to publish: the first one, with a climb.json."""
    copy = tmp_path / "project"
    for name in ("ladder", "speedups", "logs"):
        shutil.copytree(ROOT / name, copy / name)
    for name in ("baseline.py", "README.md", "RUNLOG.md"):
        shutil.copy(ROOT / name, copy)
    folder = tmp_path / "climb"
    shutil.copytree(FIRST_LOGS, folder)
    facts = {
        "kind": "climb", "started": "2026-12-24 10:00", "device": "AMD EPYC (2 threads)",
        "scripts": ["baseline.py"], "repeats": 1, "data": None, "failures": {}, "cores": 2,
        "system": "Linux", "clocks": {"before": "1", "after": "2"}, "peak_flops": 1.5e12,
        "peak_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "climb.json").write_text(json.dumps(facts))
    (folder / "climb.png").write_bytes(b"\x89PNG")
    return copy, folder


def test_publish_prepends_and_redraws(copy_of_the_project):
    copy, folder = copy_of_the_project
    runlog = copy / "RUNLOG.md"
    runlog.write_text(runlog.read_text() + "\nA line by hand.\n")
    title, _, entries = runlog.read_text().partition("\n## ")
    done = ladder("publish", folder, "All is well.", cwd=copy, env={"PYTHONPATH": str(copy)})
    assert done.returncode == 0, done.stderr
    text = runlog.read_text()
    assert text.startswith(title) and text.endswith("\n## " + entries)
    new = text[len(title) : -len("\n## " + entries)]
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert "**Finding:** All is well." in new and f"<!-- table {name} -->" in new
    assert "| 00 baseline | 4641.9 |" in new
    readme = (copy / "README.md").read_text()
    assert f"<!-- cpu {name} -->" in readme and f"({name}/climb.png)" in readme
    assert (copy / name / "10_fused_adamw.r1.log").exists()
    again = ladder("publish", folder, "Again.", cwd=copy, env={"PYTHONPATH": str(copy)})
    assert again.returncode == 2 and runlog.read_text() == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" commit=306a0e4bd8ea ", " commit=306a0e4bd8ea-dirty ", "commit first"),
        (" model=gpt2 ", " model=tiny ", "only gpt2"),
        (" data=tinyshakespeare ", " data=python-docs ", "other text than tinyshakespeare"),
    ],
)
def test_what_is_not_fit_is_not_published(copy_of_the_project, old, new, message):
    copy, folder = copy_of_the_project
    for path in folder.glob("*.log"):
        path.write_text(path.read_text().replace(old, new))
    before = (copy / "RUNLOG.md").read_text()
    done = ladder("publish", folder, "No.", cwd=copy, env={"PYTHONPATH": str(copy)})
    assert done.returncode == 2 and message in done.stderr
    assert (copy / "RUNLOG.md").read_text() == before
    assert len(list((copy / "logs").iterdir())) == len(list((ROOT / "logs").iterdir()))


def test_a_climb_that_was_stopped_is_not_published(copy_of_the_project):
    copy, folder = copy_of_the_project
    facts = json.loads((folder / "climb.json").read_text())
    del facts["clocks"]["after"]
    (folder / "climb.json").write_text(json.dumps(facts))
    for _ in range(2):  # nothing is left behind that would be "published already"
        done = ladder("publish", folder, "No.", cwd=copy, env={"PYTHONPATH": str(copy)})
        assert done.returncode == 2 and "was stopped: finish it" in done.stderr
        (folder / "climb.png").unlink(missing_ok=True)
    assert len(list((copy / "logs").iterdir())) == len(list((ROOT / "logs").iterdir()))


def test_a_script_that_git_does_not_know_is_no_commit(copy_of_the_project):
    copy, _ = copy_of_the_project
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=copy, check=True)

    def commit():
        code = "from ladder.files import commit; print(commit())"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    clean = commit()
    (copy / "notes.txt").touch()
    assert commit() == clean and len(clean) == 12
    shutil.copy(copy / "speedups" / "12_causal_blocks.py", copy / "speedups" / "13_mine.py")
    assert commit() == f"{clean}-dirty"
    subprocess.run([*git, "add", "speedups"], cwd=copy, check=True)
    subprocess.run([*git, "commit", "-qm", "13"], cwd=copy, check=True)
    assert commit() != clean and not commit().endswith("-dirty")
    (copy / "baseline.py").write_text("")
    assert commit().endswith("-dirty")


def test_rounds_that_a_5_percent_difference_takes_are_as_the_run_log_says():
    """RUNLOG.md's simulation: the spread of the published climb, 100 climbs of a known 5 %."""
    _, rows = read_climb(ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb")
    spreads = []
    for above, row in pairwise(rows):
        pairs = [(above.logs[k], row.logs[k]) for k in row.logs]
        ratios = [np.median(step_times(a)) / np.median(step_times(b)) for a, b in pairs]
        spreads.append(np.std(np.log(ratios), ddof=1))
    spread = np.sqrt(np.mean(np.square(spreads)))
    assert spread == pytest.approx(0.047, abs=0.0005)
    random, drift = np.random.default_rng(0), spread / np.sqrt(2)
    for repeats, least, most in ((10, 40, 60), (20, 78, 94), (25, 88, 100)):
        climbs = [
            gain(synthetic(random, 1.05, repeats, drift), synthetic(random, 1, repeats, drift))
            for _ in range(100)
        ]
        assert least <= sum(not found.is_noise for found in climbs) <= most, repeats
