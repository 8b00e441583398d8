"""`ladder timeit` and `ladder fit`; cells and tries are processes of their own here too."""

import errno
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import pytest
import torch
from conftest import ROOT
from rich.console import Console
from test_climb import no_peak  # noqa: F401
from test_climb_stops import LOG

from ladder.commands import fit, main, timeit
from ladder.commands.log import read_log
from ladder.commands.process import Finished, if_slow, run_python
from ladder.commands.results import read_climb, read_facts
from ladder.commands.tables import wide_console

# Stands for a rung: writes a log without training, and FATE says what becomes of its B.
RESULT = json.loads(LOG.rpartition("RESULT ")[2])
FAKE = """
import json, os, signal, sys
from pathlib import Path
flags = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
B = int(flags["--batch-size"])
log = LOG
FATE
head, _, result = log.replace(" B=4 ", f" B={B} ").rpartition("RESULT ")
result = json.loads(result) | {"tok_per_s": 100.0 * B, "peak_bytes": B * 10**9}
Path(flags["--log-dir"], "fake.log").write_text(f"{head}RESULT {json.dumps(result)}\\n")
"""
NO_MEMORY = "sys.exit('error out of memory: try a smaller --batch-size')"


def fake(folder, name: str, fate: str):
    path = folder / f"{name}.py"
    path.write_text(FAKE.replace("LOG", repr(LOG)).replace("FATE", fate))
    return path


@pytest.fixture
def ladder(monkeypatch, capsys):
    """ladder(words…): exit status, stdout and stderr of the command, run in this process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # a script needs as much memory anywhere

    def run(*words) -> tuple[int, str, str]:
        return (main([str(word) for word in words]), *capsys.readouterr())

    return run


@pytest.fixture
def no_limit(monkeypatch):
    """The scripts of `ladder fit` run without one."""
    monkeypatch.setattr(fit, "python_within", lambda gib, device_type: [sys.executable])


def fits(shard, out, *words) -> list:
    return ["fit", "--model", "tiny", "--device", "cpu", "--data", shard, "--out", out, *words]


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the disk")


def test_timeit_writes_what_it_shows(ladder, tmp_path, monkeypatch):
    monkeypatch.setattr(timeit, "PRECISIONS", ["autocast"])
    words = ("--models", "tiny", "--passes", "forward", "--vocab-size", 500, "--steps", 3)
    status, said, _ = ladder("timeit", *words, "--device", "cpu", "--out", tmp_path / "out")
    assert status == 0 and "cell 1 of 2 done, about " in said, said
    found = json.loads((tmp_path / "out" / "timeit.json").read_text())
    assert (found["B"], found["T"], found["vocab_size"], found["steps"]) == (2, 64, 500, 3)
    assert [cell["warmup"] for cell in found["cells"]] == [0, 1]
    for cell in found["cells"]:
        times = cell["times_ms"]
        numbers = [statistics.mean(times), statistics.stdev(times), statistics.median(times)]
        numbers += [sum(times), min(times), max(times)]
        names = ("mean_ms", "std_ms", "median_ms", "total_ms", "min_ms", "max_ms")
        assert len(times) == 3 and [cell[name] for name in names] == numbers
        assert re.search("│ *".join(f"{number:.2f}" for number in numbers), said)


def test_timeit_shows_pairs_and_what_failed_and_a_full_disk_loses_no_table(
    ladder, tmp_path, monkeypatch
):
    def run_cell(*words):
        cell = json.loads(words[-1])
        if cell["pass"] == "backward":
            return Finished("", "", 2, "out of memory: [tiny]")
        ms = {"fp32": 30, "autocast": 10}[cell["precision"]]
        times = json.dumps([ms, ms + 4 - 2 * cell["warmup"]])
        return Finished(f"onednn_verbose,v1,info\n{times}\n", "", 0, None)

    monkeypatch.setattr(timeit, "run_python", run_cell)
    words = ("--models", "tiny", "--passes", "backward", "forward", "--device", "cpu")
    words += ("--models", "tiny", "tiny")  # one named twice counts once
    with monkeypatch.context() as patch:
        patch.setattr(timeit, "write_whole", full)
        status, said, err = ladder("timeit", *words, "--out", tmp_path / "out")
    assert (status, err) == (2, "error the disk: No space left on device\n")
    rows = [re.split(" *│ *", line)[1:5] for line in said.splitlines() if "│" in line]
    done = [["forward", kind, w] for kind in ("autocast", "fp32") for w in "01"]
    assert [row[:3] for row in rows[:4]] == done and [row[3] for row in rows[4:]] == ["failed"] * 4
    assert "tiny backward fp32 1 failed: out of memory: [tiny]\n" in said
    assert "from 2.83 ms to 1.41 ms (medians of 2 pairs of cells); it fell in 2 of them" in said

    status, said, _ = ladder("timeit", *words[:4], "--out", tmp_path / "none")
    assert status == 1 and said.count(" of 4 failed, about ") == 4  # not one was timed
    assert "No cell was measured both without and with warm-up." in said


def test_a_timeit_that_is_killed_keeps_the_cells_done(ladder, tmp_path, monkeypatch):
    def run_cell(*_):
        if (tmp_path / "out" / "timeit.json").exists():
            raise SystemExit  # so that nothing is written after it
        return Finished("[1, 2]", "", 0, None)

    monkeypatch.setattr(timeit, "run_python", run_cell)
    with pytest.raises(SystemExit):
        ladder("timeit", "--device", "cpu", "--out", tmp_path / "out")
    assert len(json.loads((tmp_path / "out" / "timeit.json").read_text())["cells"]) == 1


def test_code_that_changes_is_told(ladder, tmp_path, monkeypatch):
    commits = iter(["before", "before", "after"])
    monkeypatch.setattr(timeit, "commit", lambda: next(commits))
    monkeypatch.setattr(timeit, "run_python", lambda *_: Finished("[1, 2]", "", 0, None))
    out = tmp_path / "out"
    status, _, err = ladder("timeit", "--device", "cpu", "--out", out)
    told = f"commit before to after: the 1 cells before are in {out}\n"
    assert status == 2 and err == f"error the code changed from {told}"
    assert len(json.loads((out / "timeit.json").read_text())["cells"]) == 1

    log = dict.fromkeys(("device", "torch", "model", "T", "data"), "x") | {"steps": "6"}
    runs = [{**log, "commit": name} for name in ("before", "after", "after")]
    rows = [fit.Row(f"[a{k}]", 1, run=run) for k, run in enumerate(runs)]
    console = wide_console(file=io.StringIO())
    for row in rows:
        row.result = {"tok_per_s": 1}
    fit.report(rows, None, console)
    printed = console.file.getvalue()
    assert "commit before and after\n" in printed and all(f" [a{k}] " in printed for k in range(3))


def test_on_80_columns_timeit_leaves_columns_out():
    kept = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-examples" / "timeit.json"
    for width, last in ((80, "total"), (100, "max")):
        console = Console(width=width, file=io.StringIO())
        timeit.report(json.loads(kept.read_text()), console)
        printed = console.file.getvalue()
        assert re.search(r"┃ *(\w+)\n", printed)[1] == last
        assert len(re.findall("^gpt2.*│.*│.*│", printed, re.MULTILINE)) == 24  # none is wrapped


def test_imports_are_told_where_they_are_slow(capsys):
    with if_slow(after=60):
        pass
    assert capsys.readouterr().err == ""
    with if_slow(after=0.01):
        time.sleep(0.5)
    assert capsys.readouterr().err.startswith("note  importing PyTorch")


def test_timeit_measures_the_pass_it_names(monkeypatch):
    """Each pass's clock covers its part alone; autocast covers the forward and no backward."""
    seen = []
    now = iter(range(1000))
    monkeypatch.setattr(timeit.time, "perf_counter", lambda: seen.append("clock") or next(now))
    enter = torch.autocast.__enter__

    def spied_enter(self):
        seen.append(f"autocast {self.fast_dtype}" if self._enabled else "plain")
        return enter(self)

    backward = torch.Tensor.backward

    def spied_backward(self):
        seen.append(f"backward {torch.is_autocast_enabled('cpu')}")
        backward(self)

    monkeypatch.setattr(torch.autocast, "__enter__", spied_enter)
    monkeypatch.setattr(torch.Tensor, "backward", spied_backward)
    cell = {"model": "tiny", "B": 1, "T": 4, "vocab_size": 8, "steps": 2, "device": "cpu"}

    def steps(passes, precision, warmup):
        seen.clear()
        times = timeit.measure({**cell, "pass": passes, "precision": precision, "warmup": warmup})
        assert len(times) == 2
        return seen

    autocast = "autocast torch.bfloat16"
    assert steps("forward", "autocast", 0) == ["clock", autocast, "clock"] * 2
    assert steps("backward", "fp32", 0) == ["plain", "clock", "backward False", "clock"] * 2
    both = ["clock", autocast, "backward False", "clock"]
    assert steps("forward+backward", "autocast", 1) == both * 3


def test_fit_searches_each_rung_and_goes_on_after_a_crash(ladder, no_limit, shard, tmp_path):
    scripts = [
        fake(tmp_path, "upto5", f"if B > 5: {NO_MEMORY}"),
        fake(tmp_path, "killed", "if B > 3: os.kill(os.getpid(), signal.SIGKILL)"),
        fake(tmp_path, "crash", "if B > 2: 1 / 0"),
        fake(tmp_path, "aborts", "if B > 1: os.write(2, b'std::bad_alloc'); os.abort()"),
        fake(tmp_path, "none", NO_MEMORY),
        fake(tmp_path, "cublas", "if B > 1: sys.exit('error cuBLAS did not start, as it does')"),
        fake(tmp_path, "stopped", "log = log.replace('\"ok\"', '\"stopped\"')"),
        fake(tmp_path, "all", ""),
    ]
    out = tmp_path / "out"
    status, said, _ = ladder(*fits(shard, out, *scripts, "--max-batch", 9, "--seq-len", 16))
    assert status == 0
    rows = json.loads((out / "fit.json").read_text())["rungs"]
    assert {row["script"]: (row["B"], [*map(int, row["tries"])]) for row in rows} == {
        "upto5": (5, [1, 2, 4, 8, 6, 5]),
        "killed": (3, [5, 2, 3, 4]),
        "crash": (0, [3]),
        "aborts": (1, [1, 2]),
        "none": (0, [1]),
        "cublas": (1, [1, 2]),
        "stopped": (0, [1]),
        "all": (9, [1, 2, 4, 8, 9]),
    }
    found = {row["script"]: row for row in rows}
    assert found["upto5"]["result"] == RESULT | {"tok_per_s": 500.0, "peak_bytes": 5 * 10**9}
    assert found["crash"]["note"] == "B=3 failed: ZeroDivisionError: division by zero"
    assert found["aborts"]["tries"]["2"] == "out of memory"
    assert found["cublas"]["tries"]["2"] == "out of memory"
    assert found["stopped"]["note"].endswith("its run ended 'stopped'")
    assert found["none"]["note"] == "not even B=1 fits"
    assert "more may fit" in found["all"]["note"]
    (shown,) = (line for line in said.splitlines() if "│ upto5" in line)
    assert re.sub(r"[│ ]+", " ", shown).strip() == "upto5 5 500 5.00 GB 6"

    status, *_ = ladder(*fits(shard, tmp_path / "nothing", scripts[4]))
    assert status == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to a limit")
def test_fit_finds_where_a_real_rung_runs_out_of_memory(ladder, shard, tmp_path):
    out = tmp_path / "out"
    code = "import torch; print(open('/proc/self/status').read().split('VmData:')[1].split()[0])"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    gib = 1.6 + int(imported.stdout) / 2**20  # PyTorch's CUDA build takes half a GiB for itself
    words = ("0", "--memory", gib, "--seq-len", 1024, "--steps", 1, "--max-batch", 4)
    status, said, _ = ladder(*fits(shard, out, *words))
    assert status == 0, said
    (row,) = json.loads((out / "fit.json").read_text())["rungs"]
    B = row["B"]
    assert 1 <= B < 4
    assert row["tries"][str(B)] == "fits" and row["tries"][str(B + 1)] == "out of memory"
    log = read_log(next((out / f"baseline.B{B}").glob("*.log")))
    assert log.run["B"] == str(B) and log.run["T"] == "1024"
    assert f" {log.result['tok_per_s']:.0f} │" in said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to a limit")
def test_fit_tries_the_memory_without_modules_of_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "random.py").write_text("raise SystemExit('another one')")
    monkeypatch.chdir(tmp_path)
    assert fit.python_within(30, "cpu")[-1] == sys.executable


def test_fit_stopped_by_ctrl_c_keeps_what_it_found(ladder, no_limit, shard, tmp_path, monkeypatch):
    def stopped_at_4(*words, **options):
        if "--batch-size=4" in words:
            raise KeyboardInterrupt
        return run_python(*words, **options)

    monkeypatch.setattr(fit, "run_python", stopped_at_4)
    out = tmp_path / "my fit"  # where compiled code is in a temporary folder
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    status, said, _ = ladder(*fits(shard, out, fake(tmp_path, "all", ""), "--seq-len", 16))
    (row,) = json.loads((out / "fit.json").read_text())["rungs"]
    assert (status, row["B"], row["note"]) == (130, 2, "stopped")
    assert "stopped" in said and " 200 │" in said
    assert "B=2: fits, 200 tok/s\n" in said and not [*tmp_path.glob("ladder-cache-*")]

    with monkeypatch.context() as patch:  # Ctrl-C ends what a pipe leads to as well

        def closed(*_):
            raise BrokenPipeError

        patch.setattr(fit, "report", closed)
        words = fits(shard, tmp_path / "piped", tmp_path / "all.py", "--seq-len", 16)
        assert ladder(*words)[0] == 130
    assert json.loads((tmp_path / "piped" / "fit.json").read_text())["rungs"] == [row]

    monkeypatch.setattr(fit, "write_whole", full)
    words = fits(shard, tmp_path / "full", fake(tmp_path, "all", ""), "--max-batch", 1)
    status, said, err = ladder(*words, "--seq-len", 16)
    assert (status, err) == (2, "error the disk: No space left on device\n") and " 100 │" in said


def test_a_killed_search_finds_no_largest_batch_and_is_due_again(
    ladder,
    no_limit,
    no_peak,  # noqa: F811
    shard,
    tmp_path,
):
    once, out = tmp_path / "once", tmp_path / "out"
    fate = f"once = Path({str(once)!r})\n"
    fate += f"if B > 1 and not once.exists(): once.touch(); sys.exit(143)\nif B > 2: {NO_MEMORY}"
    words = ["climb", "--fit", fake(tmp_path, "mine", fate), "--memory", 4, "--repeats", 1]
    status, said, _ = ladder(*words, "--seq-len", 16, *fits(shard, out)[1:])
    assert status == 1 and "mine failed: killed by SIGTERM, at B=2" in said
    _, said, _ = ladder("climb", "--resume", out)
    assert read_facts(out)["batches"] == {"mine": 2} and "mine B=2: fits" in said


def test_a_climb_with_each_at_its_largest_batch(
    ladder,
    no_limit,
    no_peak,  # noqa: F811
    shard,
    tmp_path,
    monkeypatch,
):
    """It may be stopped in the search; then gains are per token, and B stands beside the names."""
    log = f"{LOG!r}.replace('B=4 ', f'B={{B}} ')"
    write = f"Path(sys.argv[-1], 'a.log').write_text({log}); sys.exit()"
    scripts = [
        fake(tmp_path, f"upto{n}", f"if B > {n}: {NO_MEMORY}\nif '--log-dir' in sys.argv: {write}")
        for n in (3, 6)
    ]
    scripts.append(fake(tmp_path, "none", NO_MEMORY))

    def stopped_at_6(*words, **options):
        if "--batch-size=6" in words:
            raise KeyboardInterrupt
        return run_python(*words, **options)

    out = tmp_path / "out"
    words = ["climb", "--fit", *scripts, "--memory", 4, "--repeats", 2, "--seq-len", 16]
    with monkeypatch.context() as patch:
        patch.setattr(fit, "run_python", stopped_at_6)
        assert ladder(*words, *fits(shard, out)[1:])[0] == 130
    facts = read_facts(out)
    assert facts["batches"] == {"upto3": 3}
    del facts["memory_gib"]  # an older climb has none
    (out / "climb.json").write_text(json.dumps(facts))
    status, said, _ = ladder("climb", "--resume", out)
    facts, rows = read_climb(out)
    assert "upto3 B=" not in said and "upto6 B=6: fits" in said
    assert status == 0 and facts["kind"] == "fit" and not (out / "tries").exists()
    assert facts["batches"] == {"upto3": 3, "upto6": 6, "none": "not even B=1 fits"}
    assert [row.own_B for row in rows] == [3, 6, None] and rows[2].failure == "not even B=1 fits"
    assert rows[1].gain.ratio == pytest.approx(2) and rows[1].tok_per_s == 2 * rows[0].tok_per_s
    assert "upto3, B=3" in said and "upto6, B=6" in said and ", B=its own, " in said
