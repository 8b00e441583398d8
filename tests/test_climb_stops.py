"""`ladder climb` when it is stopped, goes on, or runs scripts that others wrote; its rounds."""

import argparse
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, SMALL, hear_ctrl_c, rung
from rich.console import Console
from test_climb import FIRST_LOGS, no_peak  # noqa: F401

from ladder import files, ranks
from ladder.cli import pick_device, signals_to
from ladder.commands import climb, gemm, limits, main, precompile, process
from ladder.commands.log import read_log
from ladder.commands.results import interval, read_climb, read_facts
from ladder.commands.tables import markdown
from ladder.errors import BadInput
from ladder.machine import device_name

PUBLISHED = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb-3"
LOG = (FIRST_LOGS / "baseline.r1.log").read_text()


def write(folder, scripts, **facts):
    """The folder of a climb of which nothing has run."""
    for name, source in scripts.items():
        (folder / name).write_text(source)
    facts = {"kind": "climb", "repeats": 2, "flags": [], "failures": {}, "clocks": {}, **facts}
    facts |= {"started": "2026-11-21 10:00", "system": "Linux", "cores": 2}
    facts |= {"data": None, "commit": files.commit(), "device": device_name(pick_device(None))}
    climb.save(folder, {**facts, "versions": climb.versions(), "scripts": [*scripts]})
    return folder


@pytest.fixture
def begun(tmp_path):
    """Two rounds of two scripts that write their id and a log; b takes a minute at first."""
    source = f"""import os, sys, time
os.makedirs(os.environ["TORCHINDUCTOR_CACHE_DIR"], exist_ok=True)
name = __file__.replace(".py", ".pid")
seconds = 60 if name.endswith("b.pid") and not os.path.exists(name) else 0.1
open(name, "w").write(str(os.getpid()))
time.sleep(seconds)
open(sys.argv[-1] + "/a.log", "w").write({LOG!r})
"""
    return write(tmp_path, {"a.py": source, "b.py": source})


def start(folder):
    """The command in a process of its own, while its second run is under way; that run's id."""
    words = [sys.executable, "-m", "ladder", "climb", "--resume", str(folder)]
    running = subprocess.Popen(words, cwd=ROOT, preexec_fn=hear_ctrl_c)
    while not (folder / "b.pid").exists() or not (folder / "b.pid").read_text():
        assert running.poll() is None
        time.sleep(0.02)
    return running, int((folder / "b.pid").read_text())


def is_gone(pid):
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="children die with their parent on Linux only")
@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGKILL"])
def test_a_signal_keeps_what_was_measured_and_resume_goes_on(begun, capfd, name):
    folder, words = begun, ["climb", "--resume", str(begun)]
    running, child = start(folder)
    running.send_signal(signal.Signals[name])
    status, killed = running.wait(timeout=300), name == "SIGKILL"
    assert status == (-signal.SIGKILL if killed else 130) and is_gone(child)
    assert killed or f"Go on: ladder climb --resume {folder}" in capfd.readouterr().out
    assert killed or not list(folder.glob(".running-*"))
    kept = {path: path.read_bytes() for path in folder.glob("*.log")}
    assert 1 <= len(kept) < 4 and (folder / "cache").exists()
    capfd.readouterr()
    assert main(words) == 0
    assert len(list(folder.glob("*.log"))) == 4
    assert not (folder / "cache").exists() and not list(folder.glob(".running-*"))
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert f"({len(kept) + 1} of 4 runs, " in capfd.readouterr().out.splitlines()[0]


def test_what_was_told_to_ignore_a_hangup_goes_on(begun, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with signals_to(process.once()):
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)  # the second one does not disturb the ending
    finally:
        assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


def test_one_process_at_a_time_runs_a_climb(begun, capsys):
    with closing(files.lock(begun)):
        assert main(["climb", "--resume", str(begun)]) == 2
    assert "another run is at work in" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cache", "tries"])
def test_a_folder_elsewhere_is_neither_emptied_nor_filled(name, tmp_path, capsys):
    folder = write(tmp_path, {"a.py": copies(LOG)})
    (folder / name).symlink_to(tmp_path.parent)
    assert main(["climb", "--resume", str(folder)]) == 2
    assert f"{name} is not a regular file: remove it" in capsys.readouterr().err


def test_on_a_terminal_the_table_grows_row_by_row(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    write(tmp_path, {"a.py": "", "b.py": copies(LOG), "c.py": copies(LOG)}, repeats=1)
    threads, real = threading.active_count(), process.run_python

    def run(*words, **env):
        assert threading.active_count() == threads  # nothing is drawn beside a run
        return real(*words, **env)

    monkeypatch.setattr(process, "run_python", run)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    climb.run_rounds(tmp_path, console)
    drawn = console.file.getvalue()
    assert "a.r1: failed: it left 0 logs" in drawn and "b.r1: " not in drawn
    tables = [re.findall(r"^ ([abc]) ", part, re.MULTILINE) for part in drawn.split(" rung ")[1:]]
    assert [rows for rows, _ in itertools.groupby(tables)] == [["a"], ["a", "b"], ["a", "b", "c"]]


def stretched(log: str, factor: float) -> str:
    """A log whose steps, but for the first, took `factor` times as long."""
    head, first, *steps = log.split("| dt ")
    return "| dt ".join(
        [
            head,
            first,
            *(f"{float(s.split()[0]) * factor:.6f} {s.split(maxsplit=1)[1]}" for s in steps),
        ]
    )


@pytest.fixture
def rounds(tmp_path, monkeypatch):
    """rounds(factors, **facts): a climb of a and b, whose runs take a minute by the clock and whose
    steps take factors[script][round] of what they are in a real log. What it printed."""
    clock = iter(range(0, 10**6, 60))
    monkeypatch.setattr(climb, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def climbed(factors, stop_at=None, **facts):
        def run(script, *words, **env):
            done = len(list(tmp_path.glob(f"{script.stem}.r*.log")))
            if (script.stem, done) == stop_at:
                raise KeyboardInterrupt
            if done == len(factors[script.stem]):
                return process.Finished("", "", 1, "it broke")
            text = stretched(LOG, factors[script.stem][done])
            Path(words[-1], "x.log").write_text(text)
            return process.Finished("", "", 0, None)

        monkeypatch.setattr(process, "run_python", run)
        if not (tmp_path / "climb.json").exists():
            write(tmp_path, {"a.py": "", "b.py": ""}, **{"repeats": 6, **facts})
        console = Console(file=io.StringIO(), width=200)
        monkeypatch.setattr(climb, "wide_console", lambda: console)
        status = climb.run_and_report(tmp_path)
        return status, console.file.getvalue()

    return climbed


FACTORS = np.exp(np.random.default_rng(8).normal(0, 0.04, (2, 60)))


def due(precision):
    """How many rounds of FACTORS it takes by the rule."""
    ratios = np.log(FACTORS[0]) - np.log(FACTORS[1])
    return next(n for n in range(6, 60) if interval(ratios[:n]).width < precision)


@pytest.mark.parametrize("faster", [1, 2])
def test_rounds_are_added_until_intervals_are_narrow_whatever_the_gain(rounds, tmp_path, faster):
    status, out = rounds({"a": FACTORS[0], "b": FACTORS[1] / faster}, precision=5.0)
    assert status == 0 and due(5) > 7
    assert len(list(tmp_path.glob("*.log"))) == 2 * due(5)
    assert json.loads((tmp_path / "climb.json").read_text())["repeats"] == due(5)
    assert out.count(" over 6 rounds yet: b (± ") == due(5) - 2
    assert "(round 7, 13 min so far)" in out
    assert out.count("All intervals are narrower than ± 5 %.") == 1


def test_a_climb_for_a_precision_goes_on_where_it_was_stopped(rounds, tmp_path):
    factors = {"a": FACTORS[0], "b": FACTORS[1]}
    status, out = rounds(factors, stop_at=("b", 7), precision=5.0)
    assert status == 130 and "stopped; 15 runs are kept" in out
    status, out = rounds(factors)
    assert status == 0 and out.startswith("b.r8: ")
    assert len(list(tmp_path.glob("*.log"))) == 2 * due(5)


def test_the_time_limit_ends_a_climb_after_a_whole_round(rounds, tmp_path):
    """A round takes two minutes: after seven of them an eighth would take it to 16."""
    _, out = rounds({"a": FACTORS[0], "b": FACTORS[1]}, precision=0.1, at_most=15)
    assert len(list(tmp_path.glob("*.log"))) == 14
    assert "Not narrower than ± 0.1 % over 6 rounds yet: b (± " in out


def test_no_round_is_added_that_the_names_of_logs_have_no_room_for(monkeypatch):
    late = SimpleNamespace(gain=SimpleNamespace(rounds=9999))
    monkeypatch.setattr(climb, "read_climb", lambda _: ({}, []))
    monkeypatch.setattr(climb, "not_there", lambda *_: [late])
    facts = {"at_most": 9, "repeats": 6, "precision": 0.001}  # minutes may be missing
    assert [climb.another_round(Path(), facts, n) for n in (9998, 9999)] == [True, False]


def test_a_round_that_was_begun_is_completed_whatever_the_time(rounds, tmp_path):
    factors = {"a": FACTORS[0], "b": FACTORS[1]}
    rounds(factors, stop_at=("b", 6), precision=0.1, at_most=15)
    assert len(list(tmp_path.glob("*.log"))) == 13
    assert rounds(factors)[0] == 0 and len(list(tmp_path.glob("*.log"))) == 14


def test_the_time_limit_holds_without_a_precision_too(rounds, tmp_path):
    rounds({"a": [1] * 3, "b": [1] * 3}, repeats=3, at_most=1)
    assert len(list(tmp_path.glob("*.log"))) == 2
    assert json.loads((tmp_path / "climb.json").read_text())["repeats"] == 1


def test_a_script_that_fails_from_then_on_is_not_waited_for(rounds, tmp_path):
    status, out = rounds({"a": [1] * 60, "b": [1, 2, 1, 2]}, precision=0.1)
    assert status == 0 and len(list(tmp_path.glob("a.r*.log"))) == 8  # half of them without b
    assert "yet: b (± " in out


def test_a_later_round_times_only_the_large_matmul(tmp_path, monkeypatch, capsys):
    asked = []

    def run(_, module, *words):
        monkeypatch.setattr(sys, "argv", [module, *words])
        gemm.main()
        asked.append(json.loads(capsys.readouterr().out))
        return process.Finished(json.dumps(asked[-1]), "", 0, None)

    monkeypatch.setattr(process, "run_python", run)
    monkeypatch.setattr(gemm, "matmul_flops", lambda *_: 2e12)
    monkeypatch.setattr(gemm, "copy_rate", lambda: 1e10)
    climb.large_matmul(["--device=cpu"])
    facts = read_facts(write(tmp_path, {"a.py": ""}, flags=["--device=cpu"])) | {"peaks": [1e12]}
    clock = iter([0, 60])
    monkeypatch.setattr(climb, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert "runs at 2 TFLOP/s" in climb.peak_of_round(tmp_path, facts, 2)
    assert facts["minutes"] == 1  # --at-most counts it
    assert asked[0].keys() - asked[1].keys() == {"fp32_flops", "copy_bytes_per_s"}


def test_a_round_that_stands_apart_is_named_and_kept(rounds, tmp_path):
    _, out = rounds({"a": [1, 1, 2.1], "b": [1, 1.9, 1]}, repeats=3)
    assert out.count("more than twice the median of its row") == 1
    _, (a, _) = read_climb(tmp_path)
    assert f"Round 3 of a took {a.ms * 2.1 ** (2 / 3):.1f} ms a step" in out and len(a.logs) == 3


def test_a_round_that_failed_is_named_on_the_screen_and_in_the_run_log(rounds, tmp_path):
    _, out = rounds({"a": [1, 1, 1], "b": [1, 1]}, repeats=3)
    said = "Round 3 of b failed; its row and gains have the others only: "
    assert f"{said}it broke\n" in out and "Round 3 of a" not in out
    climb.save(tmp_path, read_facts(tmp_path) | {"failures": {"b.r3": "<!-- end -->\n| x"}})
    assert markdown(*read_climb(tmp_path)).endswith(f"\n{said}&lt;!-- end --> | x\n")


def test_changed_code_stops_a_climb_before_the_next_run(rounds, tmp_path, monkeypatch):
    commits = iter(["before", "before", "after"])
    write(tmp_path, {"a.py": "", "b.py": ""})
    facts = json.loads((tmp_path / "climb.json").read_text())
    climb.save(tmp_path, {**facts, "commit": "before"})
    monkeypatch.setattr(climb, "commit", lambda: next(commits))
    factors = {"a": [1] * 6, "b": [1] * 6}
    with pytest.raises(
        BadInput, match=r"changed from commit before to after.*2 runs are kept\. Go"
    ):
        rounds(factors)
    assert len(list(tmp_path.glob("*.log"))) == 2
    monkeypatch.setattr(climb, "commit", lambda: "before")
    status, _ = rounds(factors)
    assert status == 0 and len(list(tmp_path.glob("*.log"))) == 4


def test_uncommitted_code_that_changed_stops_a_climb_before_the_next_run(tmp_path, monkeypatch):
    """Also where git is missing: the commit is the same before and after."""
    (tmp_path / "code").mkdir()
    used = tmp_path / "code" / "baseline.py"
    monkeypatch.setattr(climb, "ROOT", used.parent)
    monkeypatch.setattr(climb, "large_matmul", lambda *_: {"clocks": "1", "peak_flops": 1e12})
    monkeypatch.setattr(climb, "own_scripts", lambda _: {})
    args = SimpleNamespace(**dict.fromkeys(["out", "quick", "data", "repeats", "precision"]))
    for name in ["at_most", "precompile", *climb.PASSED_ON]:
        setattr(args, name, None)
    for number, now in enumerate(["0123456789ab", "0123456789ab-dirty", "unknown"]):
        used.write_text("RATE = 3e-4")
        monkeypatch.setattr(climb, "commit", lambda now=now: now)
        args.out = tmp_path / str(number)
        facts = json.loads((climb.new_folder(args, "climb", []) / "climb.json").read_text())
        climb.check_code(args.out, facts)
        used.write_text("RATE = 3e-2")
        if number == 0:  # the commit tells
            assert "code" not in facts
        else:
            with pytest.raises(BadInput, match="the code, which is not committed, changed"):
                climb.check_code(args.out, facts)


def copies(text: str) -> str:
    """A script that leaves this log."""
    return f"import sys\nopen(sys.argv[-1] + '/x.log', 'w').write({text!r})\n"


def without(key: str) -> str:
    """LOG, its RESULT without a key."""
    head, _, result = LOG.rpartition("RESULT ")
    return head + "RESULT " + json.dumps({k: v for k, v in json.loads(result).items() if k != key})


NO_RATE = LOG.replace('"tok_per_s": ', '"tok_per_s": null, "was": ')
NO_STEPS = LOG.replace('"warmup_steps": ', '"warmup_steps": 1000')
OWN = {
    "good": (copies(LOG), None),
    "no_key": (copies(without("first_step_ms")), "stand in a table: KeyError('first_step_ms"),
    "no_rate": (copies(NO_RATE), "x.log cannot stand in a table: a number in it makes no sense"),
    "warm_up": (copies(NO_STEPS), "its warm-up is not as ladder/run.py has it"),
    "list": (copies(LOG.partition("RESULT")[0] + "RESULT [1]"), "cannot stand in a table: "),
    "garbage": (copies("\0\1 garbage"), "x.log is not a log of this ladder: line 1"),
    "other_batch": (copies(LOG.replace(" B=4 ", " B=8 ")), "its logs differ in B (4, 8)"),
    "signal": ("import os\nos.kill(os.getpid(), 35)\n", "killed by signal 35"),
    "told": ("import sys\nsys.exit(143)\n", "killed by SIGTERM"),  # as ladder/run.py does
    "loud": ("import sys\nsys.exit('x' * 20_000_000)\n", "x" * 300),
}


def test_scripts_of_ones_own_fail_each_with_one_line(tmp_path, capsys):
    scripts = {f"{name}.py": source for name, (source, _) in OWN.items()}
    write(tmp_path, scripts, repeats=1)
    assert main(["climb", "--resume", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[: len(OWN)]
    for line, (name, (_, why)) in zip(lines, OWN.items(), strict=True):
        news = line.removeprefix(f"{name}.r1: ").rpartition(" (")[0]
        assert news == "221 tok/s" if why is None else why in news, line
        assert str(tmp_path) not in news and len(news) < 400
    assert (tmp_path / "loud.r1.failed").stat().st_size == 2**20
    assert [row.stem for row in read_climb(tmp_path)[1] if row.logs] == ["good"]
    # What a signal killed or is unlike the rest is tried again, what failed by itself is not.
    (tmp_path / "signal.py").write_text(scripts["good.py"])
    assert main(["climb", "--resume", str(tmp_path)]) == 0
    other, signal, told, *_ = capsys.readouterr().out.splitlines()
    assert other.startswith("other_batch.r1: failed") and signal.startswith("signal.r1: 221 tok/s")
    assert told.startswith("told.r1: failed: killed by SIGTERM")
    assert len(list(tmp_path.glob("*.log"))) == 2


def test_a_climb_goes_on_only_on_its_device(tmp_path, capsys):
    write(tmp_path, {"a.py": copies(LOG)}, flags=["--device=cpu"])
    facts, cpu = read_facts(tmp_path), device_name(pick_device("cpu")).rpartition(" (")[0]
    for device, to_do in (f"{cpu} (3 threads)", "set OMP_NUM_THREADS=3"), ("Z80", "start anew"):
        climb.save(tmp_path, facts | {"device": device})
        assert main(["climb", "--resume", str(tmp_path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f" began with device {device}, now it is {cpu} (" in line and line.endswith(to_do)
    assert not list(tmp_path.glob("*.log"))


def test_a_folder_that_is_deleted_or_full_ends_a_climb_in_one_line(tmp_path, capsys, monkeypatch):
    source = "import os, shutil\nshutil.rmtree(os.path.dirname(__file__))\n"
    folder = tmp_path / "climb"
    folder.mkdir()
    write(folder, {"a.py": source})
    assert main(["climb", "--resume", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error stopped: {folder}") and "No such file" in line
    assert not folder.exists()
    folder.mkdir()
    write(folder, {"a.py": copies(LOG)})

    def full(path, *_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(climb, "write_whole", full)
    assert main(["climb", "--resume", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device; 1 runs are kept. Go on: " in line


def ctrl_c(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("trouble", ["full", "head -1", "tee, and Ctrl-C"])
def test_what_ends_standard_output_ends_a_climb(trouble, tmp_path, capsys, monkeypatch):
    write(tmp_path, {"a.py": copies(LOG)})
    if "Ctrl-C" in trouble:  # it ends tee too
        monkeypatch.setattr(process, "run_python", ctrl_c)
    read, pipe = os.pipe()
    os.close(read)
    with open("/dev/full" if trouble == "full" else pipe, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        status = main(["climb", "--resume", str(tmp_path)])
    told, *more = capsys.readouterr().err.splitlines()
    assert told == f"stopped; {climb.kept(tmp_path)}"
    full = ["error standard output: No space left on device"]
    assert (status, more) == ((2, full) if trouble == "full" else (130, []))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a climb.json of this ladder: "),
        ('{"kind": "climb", "started": 3}', "climb.json: started=3 is not as ladder climb"),
        ('{"batches": null}', "batches=None is not as ladder climb writes it"),
        ('{"batches": {"a": []}}', "batches={'a': []} is not as"),
        ('{"data": 7}', "data=7 is not as"),
        ('{"free_bytes": "x"}', "free_bytes='x' is not as"),
        ('{"code": 1}', "code=1 is not as"),
        ('{"scripts": ["\\ud800.py"]}', "is not a climb.json of this ladder: 'utf-8' codec"),
        (None, "is no climb: it has no climb.json"),  # a folder of that name
    ],
)
def test_a_climb_json_that_is_none(text, message, tmp_path, capsys):
    path = tmp_path / "climb.json"
    path.mkdir() if text is None else path.write_text(text)
    assert main(["climb", "--resume", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_compile_caches_are_filled_side_by_side_after_the_first(tmp_path, monkeypatch):
    """The second and the third end only when both are under way."""
    source = f"""
# torch.compile
import os, pathlib, sys, time
os.makedirs(sys.argv[-1])
{copies(LOG)}
own, folder = pathlib.Path(__file__), pathlib.Path({str(tmp_path)!r})
assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder / "cache" / own.stem)
assert own.stem != "a" or not list(folder.glob("*.begun"))
(folder / f"{{own.stem}}.begun").touch()
for _ in range(300):
    if own.stem == "a" or len(list(folder.glob("[bc].begun"))) == 2:
        raise SystemExit
    time.sleep(0.1)
(folder / "alone").touch()
"""
    scripts = {"a.py": source, "plain.py": "1 / 0", "b.py": source, "c.py": source}
    write(tmp_path, scripts, precompile=True)
    monkeypatch.setattr(precompile, "free_bytes", lambda: 2**40)
    paths = [tmp_path / name for name in scripts]
    news = precompile.precompile(paths, [], tmp_path / "cache", {"cores": 2})
    assert news.startswith("compiled 3 scripts first, 2 at once")
    assert {path.stem for path in tmp_path.glob("*.begun")} == {"a", "b", "c"}
    assert not (tmp_path / "alone").exists()


def test_a_script_that_fails_is_not_counted_as_compiled_and_need_not_be_utf_8(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"# -*- coding: latin-1 -*- \xe9, torch.compile\nraise SystemExit(2)\n")
    news = precompile.precompile([path], [], tmp_path / "cache", {"cores": 1})
    assert news.startswith("compiled 0 scripts") and ", 1 failed: " in news


def test_what_the_search_of_a_climb_with_fit_left_is_removed(tmp_path):
    """It may have been stopped when all batches were found."""
    write(tmp_path, {"a.py": copies(LOG)}, kind="fit", batches={"a": 4}, repeats=1)
    (tmp_path / "tries" / "a.B4").mkdir(parents=True)
    assert main(["climb", "--resume", str(tmp_path)]) == 0
    assert (tmp_path / "a.r1.log").exists() and not (tmp_path / "tries").exists()


def test_as_many_at_once_as_memory_allows(tmp_path, monkeypatch):
    (tmp_path / "x.log").write_text(LOG)
    peak = read_log(tmp_path / "x.log").result["peak_bytes"]
    monkeypatch.setattr(precompile, "free_bytes", lambda: 4 * peak)
    assert precompile.how_many_fit(tmp_path, {"cores": 64}) == 3  # a quarter more than the peak
    assert precompile.how_many_fit(tmp_path, {"cores": 2}) == 2
    monkeypatch.setattr(precompile, "free_bytes", lambda: 2**40)
    gpu = {"cores": 64, "free_bytes": 10 * (1.25 * peak + 1e9)}
    assert precompile.how_many_fit(tmp_path, gpu) == 10
    assert precompile.how_many_fit(tmp_path / "none", {"cores": 64}) == 1
    monkeypatch.undo()
    monkeypatch.setattr(precompile, "CGROUP", tmp_path)
    all_of_it = precompile.free_bytes()
    assert all_of_it > 2**20
    for most, free in ((2**20, 2**20 - 5), ("max", all_of_it)):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        (tmp_path / "memory.current").write_text("5\n")
        assert precompile.free_bytes() == pytest.approx(free, rel=0.5)


@pytest.mark.usefixtures("no_peak")
@pytest.mark.slow
def test_a_quick_climb_has_warm_caches_and_says_so(shard, tmp_path, capsys):
    """The real torch.compile, of a model that is small."""
    own, out = tmp_path / "one_layer.py", tmp_path / "out"
    small = "GPTConfig(n_layer=1, n_head=2, n_embd=32)"
    own.write_text(rung(5).read_text().replace("GPTConfig(**MODELS[args.model])", small))
    assert small in own.read_text()
    words = ["climb", 0, own, *SMALL, "--quick", "--repeats", 1, "--data", shard, "--out", out]
    assert main([*map(str, words)]) == 0
    facts, rows = read_climb(out)
    assert facts["quick"] and facts["precompile"] and facts["at_most"] == 5
    assert [row.logs[1].effective.get("compile_cache") for row in rows] == [None, "warm"]
    assert rows[0].logs[1].run["steps"] == "5"
    told = capsys.readouterr().out
    words = " ".join(told.split())  # it wraps, where depends on the CPU's name
    assert "compiled 1 scripts first" in words and "quick: few steps and rounds" in words
    (line,) = [line for line in told.splitlines() if line.strip().startswith("one_layer ")]
    assert " s warm " in line


def test_only_what_share_takes_is_to_be_shared(tmp_path):
    folder = shutil.copytree(PUBLISHED, tmp_path / "climb")
    facts = json.loads((folder / "climb.json").read_text())
    own = {"scripts": [*facts["scripts"], "mine.py"]}
    for changed in {}, {"quick": True}, {"data": "/x"}, own:
        climb.save(folder, facts | changed)
        console = Console(file=io.StringIO(), width=500)
        assert climb.report(folder, console) == 0
        last = console.file.getvalue().splitlines()[-1]
        assert (last == f"share it: ladder share {folder}") == (not changed), changed


def test_what_a_failing_script_says_is_printable(tmp_path, capsys):
    write(tmp_path, {"a.py": "import sys\nsys.exit('error \x1b[2Jowned\x07')\n"}, repeats=1)
    assert main(["climb", "--resume", str(tmp_path)]) == 1
    facts = json.loads((tmp_path / "climb.json").read_text())
    assert facts["failures"] == {"a.r1": r"\x1b[2Jowned\x07"}
    assert "\x1b" not in capsys.readouterr().out


def test_a_bad_log_stops_a_climb_and_is_no_failure_of_another_run(tmp_path, capsys):
    log, begun = tmp_path / "a.r1.log", tmp_path / "begun"
    breaks = f"open({str(log)!r}, 'w')\nopen({str(begun)!r}, 'a').write('once')\n"
    write(tmp_path, {"a.py": copies(LOG), "b.py": copies(LOG) + breaks})
    for _ in range(2):
        assert main(["climb", "--resume", str(tmp_path)]) == 2
        assert "it has no run line: remove that log; 1 runs are kept" in capsys.readouterr().err
        assert read_facts(tmp_path)["failures"] == {} and begun.read_text() == "once"


def test_what_no_run_of_a_climb_left_stops_it_before_the_first(tmp_path, capsys):
    names = ["zzz.rX", "zzz.r1", "a.r01", "a.r9", "other"]
    for name, failures in [*((name, {}) for name in names), ("a.r9999", {"a.r9999": "it broke"})]:
        write(tmp_path, {"a.py": "1 / 0"}, failures=failures)
        (tmp_path / f"{name}.log").write_text(LOG)
        assert main(["climb", "--resume", str(tmp_path)]) == 2
        assert f" has {name}, which is no run of this climb: remove it" in capsys.readouterr().err
        (tmp_path / f"{name}.log").unlink()
    assert not list(tmp_path.glob("*.failed"))


def test_a_script_of_ones_own_that_changed_stops_its_climb(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.py").write_text(copies(LOG))
    found = {"clocks": "1", "peak_flops": 1e12, "device": device_name(pick_device(None))}
    monkeypatch.setattr(climb, "large_matmul", lambda *_: {**found})
    parser = argparse.ArgumentParser()
    climb.add_run_arguments(parser)
    args = parser.parse_args(["--out", str(tmp_path / "out")])
    folder = climb.new_folder(args, "climb", [tmp_path / "a.py"])
    (folder / "a.py").write_text("1 / 0")
    assert main(["climb", "--resume", str(folder)]) == 2
    assert "a.py changed: change it back; 0 runs are kept" in capsys.readouterr().err


def test_the_last_climb_that_was_stopped_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["fit-1", "climb-2", "climb-3"]):
        (folder := tmp_path / "runs" / name).mkdir(parents=True)
        write(folder, {"a.py": ""}, clocks={"after": "1"} if name == "climb-3" else {})
        os.utime(folder / "climb.json", (number, number))
    assert climb.find_stopped("") == Path("runs/climb-2")
    os.utime(tmp_path / "runs" / "fit-1" / "climb.json", (9, 9))
    assert climb.find_stopped("") == Path("runs/fit-1")
    for name in "fit-1", "climb-2":
        write(tmp_path / "runs" / name, {"a.py": ""}, clocks={"after": "1"})
    with pytest.raises(BadInput, match="no climb under runs/ that was stopped"):
        climb.find_stopped("")
    assert climb.find_stopped("runs/climb-3") == Path("runs/climb-3")


@pytest.mark.parametrize("name", ["..", "...py", "a/..", "/"])
def test_a_script_whose_compile_cache_is_a_folder_above_is_refused(name, tmp_path, capsys):
    write(tmp_path, {"a.py": ""})
    climb.save(tmp_path, read_facts(tmp_path) | {"scripts": [name]})
    assert main(["climb", "--resume", str(tmp_path)]) == 2
    assert f"climb.json names the script {name}, which is none" in capsys.readouterr().err


def test_a_climb_that_has_ended_stays_as_it_is(tmp_path, capsys):
    """Its name, of 120 letters outside ASCII, is one that a climb.json may have."""
    folder = tmp_path / "my climb"
    folder.mkdir()
    facts = {"repeats": 1, "clocks": {"after": "1 MHz"}}
    write(folder, {"\u0434" * 120 + ".py": copies(LOG)}, **facts)
    for after in (True, False):
        assert main(["climb", "--resume", str(folder)]) == 0
        ended = (folder / "climb.json").read_bytes()
        assert (b'"1 MHz"' not in ended) == after
        climb.save(folder, read_facts(folder) | {"clocks": {"after": "1 MHz"}})
    assert shlex.split(climb.kept(folder))[-1] == str(folder)


@pytest.mark.parametrize("does", ["exec sleep 60", r"printf 'NVIDIA \377\n'"])
def test_an_nvidia_smi_that_hangs_or_prints_other_bytes(does, card, tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("torch.randn", lambda *_, **__: None)
    monkeypatch.setattr(gemm, "keep_busy", lambda *_: None)
    assert limits.here() is None and gemm.clocks(card("T4")) == "unknown"


def test_no_compile_cache_has_a_blank_in_its_path(tmp_path, monkeypatch):
    """PyTorch splits the compiler's command there."""
    caches, folder = [], tmp_path / "My Projects"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run_python(*_, **env):
        caches.append(env["TORCHINDUCTOR_CACHE_DIR"])
        return process.Finished("", "", 1, "no compiler")

    monkeypatch.setattr(process, "run_python", run_python)
    for out in (folder, folder, tmp_path):
        out.mkdir(exist_ok=True)
        with pytest.raises(BadInput, match="no compiler"):
            climb.run_once(out, {}, Path("05.py"), "05.r2", [])
    assert shlex.split(" ".join(caches)) == caches and caches[0] == caches[1]
    assert caches[2] == str(tmp_path / "cache" / "05")
    process.compile_cache(folder).chmod(0o777)  # or another user's, who knows its name
    with pytest.raises(BadInput, match="is not yours alone: delete it, or set TMPDIR"):
        process.compile_cache(folder)


def test_a_measured_ddp_run_leaves_no_checkpoint_in_the_current_folder(tmp_path, monkeypatch):
    """Nor does a copy of it under another name."""
    started = []
    monkeypatch.setattr(process, "Popen", lambda words, env, **_: started.append(env))
    process.start("my_ddp.py", "--log-dir", tmp_path)
    for name in started[0].keys() - os.environ.keys():
        monkeypatch.setenv(name, started[0][name])
    args = ranks.parse("", ["--log-dir", str(tmp_path), "--device", "cpu"])
    assert (args.ckpt_every, args.ckpt_dir) == (0, f"{tmp_path}/checkpoints")
    args.seq_len, said = 10**6, []
    with pytest.raises(BadInput):  # the text is too short: the note comes before it is read
        ranks.prepare(args, said.append)
    assert said[0].startswith("note  LADDER_MEASURED is set: a checkpoint is saved on SIGTERM ")


def test_a_module_is_not_taken_from_the_current_folder(tmp_path, monkeypatch):
    """It may be another checkout, whose code would be measured under this one's commit."""
    (tmp_path / "ladder").mkdir()
    for name in ("ladder/__init__.py", "torch.py", "runpy.py"):
        (tmp_path / name).write_text("raise SystemExit('another one')")
    monkeypatch.chdir(tmp_path)
    done = process.run_python("-m", "ladder.commands.gemm", "--device=none")
    assert done.failure.startswith("--device none: expected cpu")


def test_what_is_typed_is_not_for_a_process():
    """It would wait for an answer, unseen: its prompt goes into a file."""
    (read, write), before = os.pipe(), os.dup(0)
    os.write(write, b"typed\n")
    os.dup2(read, 0)
    try:
        assert process.run_python("-c", "input()").failure == "EOFError: EOF when reading a line"
    finally:
        os.dup2(before, 0)
        for number in (read, write, before):
            os.close(number)


def test_the_answer_of_a_process_is_found_among_what_libraries_print():
    """As with ONEDNN_VERBOSE=1."""
    told = "onednn_verbose,v1,info\n[W] slow\n\n{}[W] bye\n3\n"
    assert process.Finished(told.format('{"a": 1}\n'), "", 0, None).answer() == {"a": 1}
    for failure, why in (None, "it printed no result"), ("it broke", "it broke"):
        with pytest.raises(BadInput, match=why):
            process.Finished(told.format("{}\n" * bool(failure)), "", 0, failure).answer()


def test_a_full_temporary_folder_fails_no_run(tmp_path, monkeypatch):
    """A script that can print no more ends with status 2, and its reason is lost."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    write(tmp_path, {"a.py": copies(LOG)}, repeats=1)
    assert main(["climb", "--resume", str(tmp_path)]) == 0


def test_a_run_on_a_full_disk_stops_the_climb_and_is_due_again(tmp_path, capsys):
    resource = pytest.importorskip("resource")
    write(tmp_path, {"a.py": "raise SystemExit(2)", "b.py": copies(LOG)}, repeats=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        assert main(["climb", "--resume", str(tmp_path)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"error stopped: {tmp_path}: File too large; 0 runs are kept" in capsys.readouterr().err
    assert main(["climb", "--resume", str(tmp_path)]) == 0
    assert read_facts(tmp_path)["failures"] == {"a.r1": "it said nothing"}
