"""`ladder climb`; the rule that tells a gain from noise."""

import contextlib
import io
import json
import os
import re
import shutil

import numpy as np
import pytest
from conftest import ROOT, SMALL, rung
from rich.console import Console

from ladder import files
from ladder.cli import pick_device
from ladder.commands import climb, main, process
from ladder.commands.log import Log
from ladder.commands.results import Gain, Row, gain, interval, not_there, read_climb, step_times
from ladder.commands.scripts import all_scripts
from ladder.commands.tables import caption, cells, doubts, percent, screen
from ladder.errors import BadInput
from ladder.machine import device_name

FIRST_LOGS = ROOT / "logs" / "2026-11-21-amd-epyc-2-cores-first"


def as_row(times) -> Row:
    """A row of runs whose steps took these times: (rounds, steps), seconds."""
    run, result = {"B": "4", "T": "256"}, {"warmup_steps": 0}
    steps = [[{"dt": dt} for dt in one] for one in times]
    return Row("synthetic", {k: Log(run=run, steps=s, result=result) for k, s in enumerate(steps)})


@pytest.fixture(scope="module")
def identical():
    """identical(random, *size): log times of the steps of so many runs of one script.

    They vary as in the ten rounds of logs/…-rule-10-rounds: each run as one of those differs from
    the median of its script, each step as one of a single of those runs differs from its median.
    """
    rows = read_climb(ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-rule-10-rounds")[1]
    times = [np.log([step_times(log) for log in row.logs.values()]) for row in rows]
    medians = [np.median(one, axis=1, keepdims=True) for one in times]
    runs = np.concatenate([median - np.median(median) for median in medians])[:, 0]
    steps = np.concatenate([one - median for one, median in zip(times, medians, strict=True)])

    def draw(random, *size):
        of = steps[random.integers(len(steps), size=size)]
        drawn = np.take_along_axis(of, random.integers(of.shape[-1], size=of.shape), axis=-1)
        return random.choice(runs, (*size, 1)) + drawn

    return draw


@pytest.mark.parametrize("rounds", [3, 6, 10])
def test_two_identical_scripts_are_told_apart_once_in_twenty(rounds, identical):
    times = np.exp(identical(np.random.default_rng(rounds), 1000, 2, rounds))
    pairs = [(as_row(a), as_row(b)) for a, b in times]
    assert 33 <= sum(not gain(*pair).is_noise for pair in pairs) <= 67  # 50: by 2.5 deviations
    assert gain(as_row(times[0, 0, :1]), as_row(times[0, 1, :1])) is None, "one tells nothing"


def test_a_precision_names_hardly_more_of_them(identical):
    """Rounds until ± 10 %, nine of them by the median: 6 % of 20,000 pairs are named."""
    times = np.median(identical(np.random.default_rng(1), 2000, 2, 60), axis=-1)
    found = []
    for ratios in times[:, 0] - times[:, 1]:
        row = Row("b", {})
        for n in range(2, 61):
            row.gain = interval(ratios[:n])
            if not not_there([row], 10):
                break
        found.append((row.gain.rounds, row.gain.is_noise))
    assert min(n for n, _ in found) == 6 and 7 <= np.median([n for n, _ in found]) <= 11
    assert 90 <= sum(not noise for _, noise in found) <= 142  # 116: by 2.5 deviations


def test_a_difference_well_above_the_noise_is_named():
    random = np.random.default_rng(2)
    drift, noise = random.normal(0, 0.01, (30, 2, 5, 1)), random.normal(0, 0.03, (30, 2, 5, 14))
    found = [gain(as_row(1.1 * a), as_row(b)) for a, b in np.exp(drift + noise)]
    assert sum(not one.is_noise for one in found) >= 29
    assert np.median([one.ratio for one in found]) == pytest.approx(1.1, abs=0.01)
    assert all(one.low < one.ratio < one.high for one in found)


@pytest.fixture(scope="module")
def climbed(shard, tmp_path_factory):
    """A climb of two rungs and scripts that crash, run out of memory and write no log."""
    folder = tmp_path_factory.mktemp("climb")
    sources = {
        "crash": rung(0).read_text().replace("loss.backward()", "loss.backwards()"),
        "hungry": "raise SystemExit('error out of memory: try less')",
        "silent": "",
    }
    own = [folder / f"{stem}.py" for stem in sources]
    for path in own:
        path.write_text(sources[path.stem])
    tracked = ("status", "--porcelain", "--untracked-files=no")
    before = files.git(*tracked).stdout
    words = ["climb", "0-1", *own, *SMALL, "--steps", 4, "--repeats", 2, "--data", shard]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*map(str, words), "--out", str(folder / "run")]) == 0
    assert files.git(*tracked).stdout == before, "a climb must change nothing that git tracks"
    return folder / "run", out.getvalue()


def test_climb_leaves_logs_facts_and_picture(climbed):
    folder, out = climbed
    names = {f"{stem}.r{k}.log" for stem in ("baseline", "01_weight_tying") for k in (1, 2)}
    assert {path.name for path in folder.glob("*.log")} == names
    facts = json.loads((folder / "climb.json").read_text())
    for key in ("commit", "device", "versions", "system", "cores", "clocks", "peak_flops"):
        assert facts[key], key
    assert {"fp32_flops", "copy_bytes_per_s"} <= facts.keys()  # on a CPU
    assert "a copy reads and writes " in out and "of its limit" not in out  # not of tiny
    assert "--batch-size=2" in facts["flags"] and "--seed" not in str(facts["flags"])
    assert (folder / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "cache").exists()
    assert facts["peaks"][1] > 0 and facts["peak_flops"] == np.median(facts["peaks"])
    assert facts["load"] >= 0 and "round 2: a large matmul runs at" in out
    assert (
        "00 baseline" in out and "01 weight tying" in out and "2 warm-up steps are left out" in out
    )


def test_each_run_is_one_plain_line_where_there_is_no_terminal(climbed):
    folder, out = climbed
    _, (baseline, *_) = read_climb(folder)
    lines = [line for line in out.splitlines() if re.match(r"\w+\.r[12]: ", line)]
    rate = baseline.logs[1].result["tok_per_s"]
    start = re.escape(f"baseline.r1: {rate:.0f} tok/s (1 of 10 runs, about ")
    assert re.fullmatch(rf"{start}\d+ min left\)", lines[0])
    assert lines[3].startswith("hungry.r1: failed: out of memory")
    assert lines[9].startswith("silent.r2: failed: it left 0 logs")
    assert lines[9].endswith("(10 of 10 runs, about 0 min left)") and "\x1b" not in out


def test_a_rung_that_fails_becomes_a_row_and_the_climb_goes_on(climbed):
    _, (baseline, tying, crash, hungry, silent) = read_climb(climbed[0])
    assert baseline.failure is None and len(tying.logs) == 2
    assert "has no attribute 'backwards'" in crash.failure and crash.gain is None
    assert hungry.failure == "out of memory: try less"
    assert silent.failure == "it left 0 logs in --log-dir instead of one"


def test_the_picture_needs_nothing_of_the_user(tmp_path):
    """LaTeX for text.usetex, a backend that matplotlib knows."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    code = "from ladder.commands.picture import *; print(matplotlib.rcParams['text.usetex'])"
    user = {"MPLBACKEND": "foo", "MATPLOTLIBRC": str(tmp_path)}
    assert process.run_python("-c", code, **user).stdout == "False\n"
    (tmp_path / "matplotlibrc").write_bytes(b"# Sch\xf6n\n")
    words = ("limits", "--picture", str(tmp_path / "x.png"))
    done = process.run_python("-m", "ladder", *words, **user)
    assert done.status == 2 and "save that file as UTF-8" in done.stderr.splitlines()[-1]


def test_climb_numbers_come_from_the_logs(climbed):
    facts, (baseline, tying, *_) = read_climb(climbed[0])
    medians, others = (
        np.array([row.logs[k].result["median_ms"] for k in (1, 2)]) for row in (baseline, tying)
    )
    assert tying.gain.ratio == pytest.approx(np.exp(np.log(medians / others).mean()), rel=1e-3)
    assert baseline.ms == pytest.approx(np.sqrt(medians.prod()), rel=1e-3)
    assert baseline.ms / tying.ms == pytest.approx(tying.gain.ratio)  # the rows divide to it
    assert baseline.tok_per_s == pytest.approx(2 * 64 / baseline.ms * 1e3)
    flops = int(baseline.logs[1].mfu["flops_per_token"])
    assert baseline.mfu == pytest.approx(
        flops * baseline.tok_per_s / max(facts["peak_flops"], facts["fp32_flops"])
    )
    peaks = [log.result["peak_bytes"] for log in baseline.logs.values()]
    assert baseline.peak_bytes == int(np.median(peaks))


def test_a_step_of_several_batches_counts_all_its_tokens(climbed, tmp_path):
    """As ddp_run.py's: four times the tokens in the same time are four times the rate."""
    folder = shutil.copytree(climbed[0], tmp_path / "climb")
    _, (_, before, *_) = read_climb(folder)
    for path in folder.glob("01_weight_tying.r*.log"):
        path.write_text(path.read_text().replace(" T=64 ", " T=64 total_batch=512 "))
    _, (_, after, *_) = read_climb(folder)
    assert after.tok_per_s == pytest.approx(4 * before.tok_per_s)
    assert after.mfu == pytest.approx(4 * before.mfu)
    assert after.gain.ratio == pytest.approx(4 * before.gain.ratio)


def test_logs_that_cannot_be_compared_are_refused(climbed, tmp_path):
    mixed = shutil.copytree(climbed[0], tmp_path / "mixed")
    path = mixed / "01_weight_tying.r2.log"
    text = path.read_text()
    for old, new, key in ((" B=2 ", " B=3 ", "B"), (" data=topics ", " data=other ", "data")):
        path.write_text(text.replace(old, new))
        with pytest.raises(BadInput, match=f"its logs differ in {key} "):
            read_climb(mixed)
    path.write_text(text[: text.index("RESULT")])
    with pytest.raises(BadInput, match=r"01_weight_tying\.r2\.log is cut short"):
        read_climb(mixed)


def gained(low, ratio, high, rounds):
    row = Row("02_tf32", dict.fromkeys(range(rounds)))
    return percent(Gain(ratio, low, high, rounds), row)


def test_bounds_that_say_nothing_are_not_shown():
    assert gained(0.007, 0.9, 71.4, 2) == "too few rounds (2): --repeats 6"
    assert gained(0.79, 1, 1.27, 5) == "too few rounds (5): --repeats 6"
    assert gained(0.79, 1, 1.27, 6) == "within noise (−21.0 … +27.0 %)"  # as many as it asks for
    assert gained(0.81, 1, 1.24, 3) == "within noise (−19.0 … +24.0 %)"
    assert gained(1.02, 2.61, 6.7, 2) == "+161.0 % (+2.0 … +570.0)"  # wide, and yet a gain


@pytest.mark.parametrize("climb", ["climb-3", "ablate-2", "peers"])
def test_at_80_columns_four_of_a_table_stand_whole(climb):
    facts, rows = read_climb(ROOT / "logs" / f"2026-11-21-amd-epyc-2-threads-{climb}")
    found = {}
    for width in (80, 100, 200):
        console = Console(width=width, file=io.StringIO())
        console.print(screen(facts, rows, console))
        found[width] = " ".join(line.rstrip() for line in console.file.getvalue().splitlines())
        for row in rows:
            name, ms, _, rate, gain, *_ = cells(row).values()
            assert re.search(rf" {name} +{ms} +{rate} +{re.escape(gain)} ", found[width] + " ")
    assert "GB" not in found[80] and "final loss" in found[200] and "…" in found[80]


def test_what_falsifies_a_climb_is_named():
    clocks = {"before": "2596 MHz", "round 2": "clocks_throttle_reasons.active 0x0000000000000024"}
    facts = {"clocks": clocks, "load": 3.0 * os.cpu_count(), "peaks": [0.97e12, 1.2e12, 1e12]}
    load, peak, slowed = doubts(facts)
    assert load.startswith("load ") and load.endswith(": these times will mean little")
    assert peak.startswith("a large matmul ran at 0.97 TFLOP/s in one round and 1.2 in another")
    assert slowed == "the GPU was slowed by heat and its power limit (round 2)"
    quiet = {"clocks": {"before": "clocks_throttle_reasons.active 0x0000000000000001"}}
    quiet["clocks"]["after"] = "clocks_throttle_reasons.active 0xzz"  # in a file of somebody else
    assert doubts({**quiet, "load": 0.2, "peaks": [1e12, 1.05e12]}) == doubts(quiet) == []


def test_rates_are_rounded_alike():
    facts, rows = read_climb(ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb-3")
    facts["peaks"] = [0.9001e12, 1.2e12]
    assert "matmul runs at 0.973 TFLOP/s (0.9 to 1.2)" in caption(facts, rows)


@pytest.fixture
def no_peak(monkeypatch):
    """The matmul whose rate a climb measures first is left out."""
    said = {"peak_flops": 1e12, "peak_dtype": "bfloat16", "clocks": "1"}
    said["device"] = device_name(pick_device(None))  # --resume compares it
    real, none = process.run_python, process.Finished(json.dumps(said), "", 0, None)

    def run(*words, **env):
        return none if words[0] == "-m" else real(*words, **env)

    monkeypatch.setattr(process, "run_python", run)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["climb", "99"], "there is no rung 99: they go from 0 to"),
        (["climb", "no_such.py"], "neither a rung (its number or a part of its name) nor a script"),
        (["climb", "5-"], "5- is neither a rung (its number or a part of its name) nor a script"),
        (["climb", str(ROOT / "LICENSE")], "LICENSE has no name that ends in .py: rename it"),
        (["climb", "--resume"], "there is no climb under runs/ that was stopped"),
        (["climb", "--resume", "/no/such"], "is no climb: it has no climb.json"),
        (["climb", "1", "--resume", "--seed", "0"], "give no rungs, seed with it"),
        (["climb", "0", "--seq-len", "1025"], "--seq-len 1025 is longer than GPT-2's 1024"),
        (["climb", "0", "--data", "/no/such"], "no such file or folder: /no/such"),
        (["climb", "0", "--seed", str(2**64)], "argument --seed: expected at most 64 bits"),
        (["climb", "0", "--device", "cuda:99"], "--device cuda:99: this PyTorch sees"),
        (["publish", "/no/such", "Nothing."], "holds no logs of a climb"),
        (["ablate", "0"], "baseline cannot be taken back: only rungs 1 to"),
        (["climb", "--quick", "--publish", "Fast."], "a quick climb is not published"),
        (["climb", "--repeats", "10000"], "--repeats: expected 1 to 9999, got 10000"),
        (["ablate", "--precision", "0"], "--precision: expected a number above 0, got 0"),
        (["peers", "--at-most", "nan"], "--at-most: expected a number above 0, got nan"),
    ],
)
def test_mistakes_of_users_leave_nothing_behind(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(words)
    except SystemExit as stop:  # argparse's
        status = stop.code
    assert status == 2 and message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # Their compile caches, which a climb empties, would be folders above.
        ("..py", "/..py has no name that ends in .py: rename it, say"),
        ("...py", "/...py has no name that ends in .py: rename it, say"),
        ("x" * 241 + ".py", "x.py: a log could not have this name and .r1: rename it"),
    ],
)
def test_a_name_that_other_files_cannot_have_is_refused(name, said, no_peak, tmp_path, capsys):
    (tmp_path / name).write_text("1 / 0")
    words = ["climb", tmp_path / name, "--repeats", "1", "--out", tmp_path / "out"]
    assert main([*map(str, words)]) == 2 and not (tmp_path / "out").exists()
    assert said in capsys.readouterr().err


def test_a_script_named_twice_counts_once_and_two_of_one_name_are_refused(
    no_peak, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(climb, "run_and_report", lambda folder: 0)
    assert main(["climb", "10-12", "12", "10", "--out", str(tmp_path / "out")]) == 0
    names = [path.relative_to(ROOT).as_posix() for path in all_scripts()[10:13]]
    assert json.loads((tmp_path / "out" / "climb.json").read_text())["scripts"] == names
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "mine.py").touch()
    words = ["climb", "a/mine.py", "b/mine.py", "--out", "out"]
    assert main([*words[:1], *(str(tmp_path / word) for word in words[1:3]), *words[3:]]) == 2
    assert "two of these scripts have the same file name: rename one" in capsys.readouterr().err


def test_a_text_too_short_for_a_batch_is_told_before_the_first_run(
    no_peak, tmp_path, monkeypatch, capsys
):
    short, load = tmp_path / "short.txt", climb.load_corpus
    short.write_text("To be, or not")
    monkeypatch.setattr(climb, "load_corpus", lambda data, show: load(data or short, show))
    for data in (["--data", short], []):  # [] stands for tinyshakespeare
        words = ["climb", "0", *SMALL, "--repeats", 1, *data, "--out", tmp_path / "out"]
        assert main([*map(str, words)]) == 2 and not (tmp_path / "out").exists()
        assert re.search(r"corpus short has \d+ tokens, but one batch", capsys.readouterr().err)


def test_a_climb_makes_its_folder_new(no_peak, tmp_path, monkeypatch, capsys):
    (tmp_path / "baseline.r1.log").write_text("kept")
    another = tmp_path / "another"  # climb makes it while this one times a matmul
    with monkeypatch.context() as patch:
        patch.setattr(climb, "large_matmul", lambda _: another.mkdir())
        assert main(["climb", "0", "--out", str(another)]) == 2
    assert f"cannot make the folder {another}: File exists" in capsys.readouterr().err
    for out, why in (
        (__file__, "cannot make the folder"),
        (tmp_path, f"is there already: choose another --out, or --resume {tmp_path}"),
        ("", "the folder to make has an empty name"),
    ):
        assert main(["climb", "0", "--out", str(out)]) == 2
        assert why in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 2


def test_a_climb_of_which_nothing_came_to_its_end(no_peak, tmp_path, capsys):
    """Its reason is shown as it is, though rich would read [batch, time] and [/data] as markup."""
    script = tmp_path / "broken.py"
    script.write_text("raise ValueError('no tensor of [batch, time] in [/data]')\n")
    out = str(tmp_path / "[/run]")
    assert main(["climb", str(script), "--repeats", "1", "--out", out]) == 1
    words = "failed: ValueError: no tensor of [batch, time] in [/data]"
    told, table = capsys.readouterr().out.split(" rung ", 1)
    assert words in told and words in " ".join(table.split())
    assert f"climb.json and what the runs said: {out}" in table


def test_a_commit_is_that_of_the_running_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "ROOT", tmp_path)

    def commit_all():
        files.git("add", "-A")
        made = files.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "all")
        assert made.returncode == 0, made.stderr

    files.git("init", "-q")
    files.git("config", "status.showUntrackedFiles", "no")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "none"))  # as inside a hook of another repository
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    (tmp_path / "baseline.py").touch()
    commit_all()
    clean = files.commit()
    running = ("speedups/13_mine.py", "candidates/14_mine.py", "ladder/run.py", "ladder/gpus.csv")
    for name in (*running, "baseline.py", "README.md", "ladder/commands/climb.py"):
        path, counts = tmp_path / name, name in (*running, "baseline.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for text in ("1\n", "2\n"):  # a new file at first
            path.write_text(text)
            assert files.commit() == clean + "-dirty" * counts, name
            commit_all()
            clean, before = files.commit(), clean
            assert (clean != before) == counts and len(clean) == 12, name
    (tmp_path / "baseline.py").unlink()
    assert files.commit() == f"{clean}-dirty"
    (tmp_path / "baseline.py").write_text("2\n")
    assert files.commit() == clean
    for mark in "assume-unchanged", "skip-worktree":  # git status leaves such a file out
        files.git("update-index", f"--{mark}", "baseline.py")
        files.note.cache_clear()
        assert files.commit() == "unknown"
        assert "baseline.py is marked as unchanged: git update" in capsys.readouterr().err
        files.git("update-index", f"--no-{mark}", "baseline.py")
    (tmp_path / ".git" / "info" / "exclude").write_text("*_idea.py\n__pycache__/\n")
    for name, counts in ("speedups/__pycache__/a.py", False), ("speedups/14_idea.py", True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        assert files.commit() == clean + "-dirty" * counts, name
    (tmp_path / name).unlink()
    # Signed commits, and log.showSignature in the user's configuration.
    (tmp_path / "gpg").write_text(
        "#!/bin/sh\ncat > /dev/null; echo '[GNUPG:] SIG_CREATED ' >&2; echo sig\n"
    )
    (tmp_path / "gpg").chmod(0o755)
    files.git("config", "gpg.program", str(tmp_path / "gpg"))
    files.git("config", "commit.gpgSign", "true")
    files.git("config", "log.showSignature", "true")
    commit_all()
    assert re.fullmatch("[0-9a-f]{12}", files.commit())


def test_why_git_does_not_know_the_commit_is_said_once(monkeypatch, capsys):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # as root sees a user's checkout
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):  # where it may be allowed
        monkeypatch.setenv(name, os.devnull)
    files.note.cache_clear()
    assert files.commit() == files.commit() == "unknown"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("note  git cannot say which commit this is: fatal: ")
    assert "git config --global --add safe.directory " in line
