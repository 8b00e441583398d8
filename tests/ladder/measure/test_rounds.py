"""rounds.py: a climb that is stopped and goes on, and how many rounds it runs."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from climbs import FOUND, LOG, a_climb, write_climb
from helpers import closed_pipe

from ladder.checkout import ROOT
from ladder.commands import climb
from ladder.commands.main import main
from ladder.measure import process, rounds


def copies(text: str) -> str:
    """A script that leaves this log."""
    return f"import sys\nopen(sys.argv[-1] + '/x.log', 'w').write({text!r})\n"


def write(folder, scripts, **facts):
    """The folder of a climb of these scripts (their names and sources) of which nothing has run."""
    (folder / "code").mkdir(parents=True, exist_ok=True)
    for name, source in scripts.items():
        (folder / "code" / name).write_text(source)
    return write_climb(folder, scripts, **facts)


def resume(folder) -> int:
    """Go on with the climb; the exit status."""
    return main(["climb", "--resume", str(folder)])


@pytest.fixture
def begun(tmp_path):
    """Two rounds of two scripts that write their id and a log; b takes a minute at first."""
    source = f"""import os, sys, time
cache = os.environ["TORCHINDUCTOR_CACHE_DIR"]
open(__file__.replace(".py", ".caches"), "a").write(f"{{os.path.exists(cache)}} ")
os.makedirs(cache, exist_ok=True)
name = __file__.replace(".py", ".pid")
seconds = 60 if name.endswith("b.pid") and not os.path.exists(name) else 0.1
open(name, "w").write(str(os.getpid()))
time.sleep(seconds)
open(sys.argv[-1] + "/a.log", "w").write({LOG!r})
"""
    return write(tmp_path / "climb", {"a.py": source, "b.py": source})


def at_work(process: int) -> bool:
    """Whether there is such a process, and nothing has ended it."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and ") Z " not in status.read_text()


def start(folder):
    """The command in a process of its own, while its second run is under way; that run's id."""
    words = [sys.executable, "-m", "ladder", "climb", "--resume", str(folder)]
    env = {**os.environ, "TMPDIR": str(folder)}  # kill -9 leaves a folder there
    streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    running = subprocess.Popen(words, cwd=ROOT, **streams)
    pid = folder / "code" / "b.pid"
    while not pid.exists() or not pid.read_text():
        assert running.poll() is None
        time.sleep(0.02)
    return running, int(pid.read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_signal_keeps_what_was_measured_and_resume_runs_nothing_twice(begun, capsys, name):
    running, child = start(begun)
    number = signal.Signals[name]
    running.send_signal(number)
    said, _ = running.communicate(timeout=40)
    for _ in range(200):  # killed, but the system may take a moment
        if not at_work(child):
            break
        time.sleep(0.05)
    assert not at_work(child)
    if name != "SIGKILL":
        assert running.returncode == 128 + number
        assert f"stopped; runs kept: 1. Go on: ladder climb --resume {begun}\n" in said
    first = (begun / "a.r1.log").stat().st_mtime_ns
    assert resume(begun) == 0
    assert {path.stem for path in begun.glob("*.log")} == {"a.r1", "a.r2", "b.r1", "b.r2"}
    assert (begun / "a.r1.log").stat().st_mtime_ns == first
    assert (begun / "code" / "b.caches").read_text() == "False False True "  # cold in round 1
    kept, next_run, *_ = capsys.readouterr().out.splitlines()
    assert kept.startswith(f"going on with {begun}: runs kept: 1; ")
    assert next_run.startswith("b, round 1 of 2: ")


def test_an_edit_after_the_start_changes_nothing(tmp_path, monkeypatch):
    """Nor does another branch: each run imports the `ladder` that was copied with it.

    A colon in the folder's name does not cut it in two.
    """
    own, out = tmp_path / "mine.py", tmp_path / "10:21 out"
    where = f"import ladder.checkout\nassert str(ladder.checkout.ROOT) == {str(out / 'code')!r}\n"
    own.write_text(where + copies(LOG))
    monkeypatch.setattr(rounds, "large_matmul", lambda *_: FOUND)
    go_on = climb.go_on

    def edit_and_go_on(*words):
        own.write_text("1 / 0")
        go_on(*words)

    monkeypatch.setattr(climb, "go_on", edit_and_go_on)
    assert main(["climb", str(own), "--rounds", "1", "--out", str(out)]) == 0
    assert (out / "code" / "data" / "tinyshakespeare.bin").exists()


def test_the_time_limit_lets_no_run_begin_after_it(tmp_path, monkeypatch, capsys):
    """A run takes a minute by the clock: at 7 minutes the seventh has ended. To go on with it runs
    as long again."""
    write(tmp_path, {"a.py": "", "b.py": ""}, rounds=8, max_minutes=7)
    clock = SimpleNamespace(now=0, monotonic=lambda: clock.now)
    monkeypatch.setattr(rounds, "time", clock)

    def run(script, *words, **env):
        clock.now += 60
        Path(words[-1], "x.log").write_text(LOG)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(process, "start_python", run)
    over = f"7 min are over. As long again: ladder climb --resume {tmp_path}\n"
    for logs, told in ((7, True), (14, True), (16, False)):
        assert resume(tmp_path) == 0
        out = capsys.readouterr().out
        assert len(list(tmp_path.glob("*.log"))) == logs and (over in out) == told
        if logs == 7:
            assert "(1 of 16 runs, about 6 min left)" in out and "(7 of 16 runs)" in out


def test_a_quick_climb_runs_the_top_second_and_goes_down(tmp_path):
    climb = a_climb(scripts=["a.py", "b.py", "c.py", "d.py"], rounds=1, quick=True, folder=tmp_path)
    assert [run.name for _, run in climb.due()] == ["a", "d", "c", "b"]


FAILS = {
    # To rich this is markup.
    "crash": ("raise ValueError('no [batch] in [/data]')", "ValueError: no [batch] in [/data]"),
    "silent": ("", "it wrote no log to --log-dir"),
    # What may be sent has no name of a user.
    "names": (
        "import sys, tempfile; sys.exit(f'no {__file__} in {tempfile.gettempdir()}/x')",
        "no CLIMB/code/names.py in TMPDIR/x",
    ),
    "other": (copies(LOG.replace(" B=4 ", " B=8 ")), "its logs differ in B (4, 8)"),
}


def test_a_run_that_fails_is_named_and_due_again(tmp_path, capsys):
    bad = {f"{name}.py": source for name, (source, _) in FAILS.items()}
    write(tmp_path, {"good.py": copies(LOG), **bad}, rounds=1)
    assert resume(tmp_path) == 1
    out = capsys.readouterr().out
    for name, (_, why) in FAILS.items():
        (line,) = re.findall(rf"^{name}, round 1 of 1: failed: (.*) \(\d+ of 5 runs", out, re.M)
        assert why in line
        assert why in (tmp_path / f"{name}.r1.failed").read_text()
        assert f"Round 1 of {name} failed: " in out
    assert "Traceback" in (tmp_path / "crash.r1.stderr").read_text()
    for name in FAILS:
        (tmp_path / "code" / f"{name}.py").write_text(copies(LOG))
    assert resume(tmp_path) == 0
    assert not [*tmp_path.glob("*.failed"), *tmp_path.glob("*.stderr")]
    assert len(list(tmp_path.glob("*.log"))) == 5


def test_a_climb_ends_as_its_output_does(tmp_path, capsys, monkeypatch):
    """Under `| head -1`."""
    write(tmp_path, {"a.py": copies(LOG)})
    with closed_pipe() as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert resume(tmp_path) == 130
    told = f"\nstopped; runs kept: 0. Go on: ladder climb --resume {tmp_path}\n"
    assert capsys.readouterr().err == told


def test_each_round_trains_from_a_seed_of_its_own(tmp_path):
    """The first one's, and one more for each round; so is the order of rows, where losses are
    compared."""
    source = "import sys\nopen(__file__ + '.words', 'a').write(' '.join(sys.argv[1:-2]) + '\\n')\n"
    write(tmp_path, {"a.py": source + copies(LOG)}, seed=7, shuffled=True, rounds=3)
    assert resume(tmp_path) == 0
    words = (tmp_path / "code" / "a.py.words").read_text().splitlines()
    assert words == [f"--seed={seed} --shuffle={seed}" for seed in (7, 8, 9)]


def test_a_script_that_trains_from_another_seed_than_its_round_fails(tmp_path):
    """b always takes that of the first round."""
    seed = "' seed=' + sys.argv[1].partition('=')[2] + ' '"
    own = copies(LOG).replace(")\n", f".replace(' seed=1337 ', {seed}))\n")
    write(tmp_path, {"b.py": copies(LOG), "a.py": own}, rounds=2)
    assert resume(tmp_path) == 1
    (failed,) = tmp_path.glob("*.failed")
    assert failed.name == "b.r2.failed"
    assert "differ in seed of round 2 (1337, 1338)" in failed.read_text()
