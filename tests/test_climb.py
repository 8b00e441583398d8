"""`ladder climb`; the rule that tells a gain from noise."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, SMALL, hear_ctrl_c, rung
from rich.console import Console

from ladder import files
from ladder.commands import climb, main, process
from ladder.commands.results import Row, gain, read_climb
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
        timeout=900,
        **options,
    )


def synthetic(random, scale, repeats, drift=0.05, noise=0.03):
    """A row whose runs differ by `drift` and whose steps differ by `noise`, both relative."""
    logs = {}
    for repeat in range(repeats):
        times = scale * np.exp(random.normal(0, drift) + random.normal(0, noise, 14))
        steps = [{"dt": dt} for dt in times]
        logs[repeat] = Log(run={"B": "4", "T": "256"}, steps=steps, result={"warmup_steps": 0})
    return Row("synthetic", logs)


@pytest.mark.parametrize("rounds", [3, 6])
def test_two_identical_scripts_are_told_apart_once_in_twenty(rounds):
    random = np.random.default_rng(rounds)
    pairs = [(synthetic(random, 1, rounds), synthetic(random, 1, rounds)) for _ in range(400)]
    assert 10 <= sum(not gain(*pair).is_noise for pair in pairs) <= 32  # 20: by 2.8 deviations
    assert gain(*(synthetic(random, x, 1) for x in (2, 1))) is None, "one round tells nothing"


def test_a_difference_well_above_the_noise_is_named():
    random = np.random.default_rng(2)
    pairs = [[synthetic(random, x, 5, drift=0.01) for x in (1.1, 1)] for _ in range(30)]
    found = [gain(*pair) for pair in pairs]
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
    assert "--batch-size=2" in facts["flags"] and "--seed" not in str(facts["flags"])
    assert (folder / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "cache").exists()
    assert "00 baseline" in out and "01 weight tying" in out and "2 warm-up steps left out" in out


def test_each_run_is_one_plain_line_where_there_is_no_terminal(climbed):
    folder, out = climbed
    _, (baseline, *_) = read_climb(folder)
    lines = out.splitlines()[:10]
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


def test_climb_numbers_come_from_the_logs(climbed):
    facts, (baseline, tying, *_) = read_climb(climbed[0])
    medians, others = (
        np.array([row.logs[k].result["median_ms"] for k in (1, 2)]) for row in (baseline, tying)
    )
    assert tying.gain.ratio == pytest.approx(np.exp(np.log(medians / others).mean()), rel=1e-3)
    assert baseline.median_ms == pytest.approx(np.median(medians), abs=0.02)
    assert baseline.tok_per_s == pytest.approx(2 * 64 / baseline.median_ms * 1e3)
    flops = int(baseline.logs[1].mfu["flops_per_token"])
    assert baseline.mfu == pytest.approx(flops * baseline.tok_per_s / facts["peak_flops"])
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


@pytest.fixture
def begun(tmp_path):
    """The folder of a climb of which nothing has run: two rounds of two scripts that copy a log."""
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(f"""import os, shutil, sys, time
os.makedirs(os.environ["TORCHINDUCTOR_CACHE_DIR"], exist_ok=True)
time.sleep(1)
shutil.copy({str(FIRST_LOGS / "baseline.r1.log")!r}, sys.argv[-1])
""")
    facts = {"scripts": ["a.py", "b.py"], "repeats": 2, "flags": [], "data": None, "failures": {}}
    now = {"commit": files.commit(), "versions": climb.versions()}
    climb.save(tmp_path, {**facts, **now, "clocks": {}})
    return tmp_path


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(begun, capfd):
    folder, words = begun, ["climb", "--resume", str(begun)]
    command = [sys.executable, "-m", "ladder", *words]
    running = subprocess.Popen(command, cwd=ROOT, preexec_fn=hear_ctrl_c)
    while not list(folder.glob("*.r1.log")):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=300) == 130
    assert f"ladder climb --resume {folder}" in capfd.readouterr().out
    kept = {path: path.read_bytes() for path in folder.glob("*.log")}
    assert 1 <= len(kept) < 4 and not list(folder.glob("tmp*")) and (folder / "cache").exists()
    assert main(words) == 0
    assert len(list(folder.glob("*.log"))) == 4 and not (folder / "cache").exists()
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert f"({len(kept) + 1} of 4 runs, " in capfd.readouterr().out.splitlines()[0]


@pytest.fixture
def no_peak(monkeypatch):
    """The matmul whose rate a climb measures first is left out."""
    said = '{"peak_flops": null, "clocks": "1"}'
    real, none = process.run_python, process.Finished(said, "", 0, None)

    def run(*words, **env):
        return none if words[0] == "-m" else real(*words, **env)

    monkeypatch.setattr(process, "run_python", run)


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_but_a_redraw_a_second_works_beside_a_run(begun, monkeypatch, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal)
    threads, redraws = threading.active_count(), []

    def run(*words, **env):
        assert threading.active_count() == threads + terminal
        before = len(console.file.getvalue())
        time.sleep(2)
        redraws.append(console.file.getvalue()[before:].count("a.r1"))
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "run_python", run)
    with pytest.raises(KeyboardInterrupt):
        climb.run_rounds(begun, console)
    assert redraws[0] <= 2 * terminal


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["climb", "99"], "there is no rung 99: they go from 0 to"),
        (["climb", "no_such.py"], "neither the number of a rung nor a script"),
        (["climb", "0", "0"], "two of these scripts have the same file name"),
        (["climb", "--resume"], "there is no climb under runs/"),
        (["climb", "--resume", "/no/such"], "is no climb: it has no climb.json"),
        (["climb", "1", "--resume", "--seed", "0"], "give no rungs, seed with it"),
        (["climb", "0", "--seq-len", "1025"], "--seq-len 1025 is longer than GPT-2's 1024"),
        (["climb", "0", "--data", "/no/such"], "no such file or folder: /no/such"),
        (["climb", "0", "--seed", str(2**64)], "argument --seed: expected at most 64 bits"),
        (["climb", "0", "--device", "cuda:99"], "--device cuda:99: this PyTorch sees"),
        (["publish", "/no/such", "Nothing."], "holds no logs of a climb"),
        (["ablate", "0"], "there is no rung 0 to take back"),
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


def test_a_folder_that_cannot_be_made_or_is_taken(no_peak, tmp_path, capsys):
    assert main(["climb", "0", "--out", __file__]) == 2
    assert "cannot make the folder" in capsys.readouterr().err
    climb.save(tmp_path, {})
    assert main(["climb", "0", "--out", str(tmp_path)]) == 2
    assert f"choose another --out, or --resume {tmp_path}" in capsys.readouterr().err


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


def test_a_script_that_git_does_not_know_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)

    def commit_all():
        files.git("add", "-A")
        made = files.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "all")
        assert made.returncode == 0, made.stderr

    files.git("init", "-q")
    (tmp_path / "speedups").mkdir()
    (tmp_path / "baseline.py").write_text("x = 1\n")
    commit_all()
    clean = files.commit()
    (tmp_path / "notes.txt").touch()
    assert files.commit() == clean and len(clean) == 12
    (tmp_path / "speedups" / "13_mine.py").touch()
    assert files.commit() == f"{clean}-dirty"
    commit_all()
    assert files.commit() != clean and not files.commit().endswith("-dirty")
    (tmp_path / "baseline.py").write_text("")
    assert files.commit().endswith("-dirty")
