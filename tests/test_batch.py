"""`ladder batch`: rungs at several B, as one more kind of climb."""

import argparse
import re

import pytest
from rich.console import Console
from test_climb_stops import FOUND, LOG

from ladder.cli import pick_device
from ladder.commands import batch, climb
from ladder.commands.main import main
from ladder.machine import device_name
from ladder.measure import rounds, scripts
from ladder.measure.rows import read_climb, read_climb_json
from ladder.show.tables import markdown

# It leaves a log at the last B of its command line, and fails at some B. As a copy of ddp_run.py it
# is to save no checkpoint, and it has a compile cache for each B.
SCRIPT = """import os, sys  # from ladder.ranks import RANK
B = int([word for word in sys.argv if word.startswith("--batch-size=")][-1].partition("=")[2])
assert "--ckpt-every=0" in sys.argv and os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(f"_B{{B}}")
if B {when}:
    {fail}
open(sys.argv[-1] + "/x.log", "w").write({text!r}.replace(" B=4 ", f" B={{B}} "))
"""
MEMORY, KILLED = "raise SystemExit('error out of memory: try less')", "os.kill(os.getpid(), 9)"


def test_memory_ends_a_rung_the_others_go_on_and_resume_runs_nothing_twice(
    tmp_path, monkeypatch, capsys
):
    """Six B fit 80 columns. What failed otherwise is due again."""
    found = FOUND | {"device": device_name(pick_device(None))}
    monkeypatch.setattr(rounds, "large_matmul", lambda *_: {**found})
    console = Console(width=80)
    monkeypatch.setattr(climb, "wide_console", lambda: console)
    twice = re.sub(r"\| dt +([\d.]+)", lambda dt: f"| dt {float(dt[1]) / 2}", LOG)
    own = {"a": ("> 8", MEMORY, LOG), "b": ("> 2", KILLED, twice), "c": ("== 2", "1 / 0", LOG)}
    for name, (when, fail, text) in own.items():
        (tmp_path / f"{name}.py").write_text(SCRIPT.format(when=when, fail=fail, text=text))
    words = [*(tmp_path / f"{name}.py" for name in own), "--max-batch", 32, "--repeats", 2]
    folder = tmp_path / "out"
    assert main(["batch", *map(str, words), "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    begun = [[], []]
    for name, k in re.findall(r"^(\w_B\d+), round (\d) of 2, running since", out, re.M):
        begun[int(k) - 1].append(name)
    first = [f"{x}_B{B}" for B in (1, 2, 4) for x in "abc"] + ["a_B8", "c_B8", "a_B16"]
    first += ["c_B16", "c_B32"]
    assert begun == [first, [name for name in first[::-1] if name not in ("a_B16", "b_B4")]]
    assert "b_B4, round 1 of 2: killed by SIGKILL, as where memory is full (8 of 29 " in out
    assert "a_B16, round 1 of 2: out of memory (" in out
    failures = {"b_B4.r1": "out of memory", "a_B16.r1": "out of memory"}
    why = "ZeroDivisionError: division by zero"
    assert read_climb_json(folder)["failures"] == failures | {"c_B2.r1": why, "c_B2.r2": why}
    assert re.search(r"\n b, tok/s +95 +190 +out of memory +– +– +– +2 *\n", out)
    assert all(len(line) <= 80 for line in out.splitlines() if line.startswith(" "))
    (folder / "code" / "c.py").write_text((folder / "code" / "a.py").read_text())
    assert main(["climb", "--resume", str(folder)]) == 0
    begun = re.findall(r"(\w+), round (\d) of 2, running", capsys.readouterr().out)
    assert begun == [("c_B2", "1"), ("c_B2", "2")]
    assert (folder / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "gpt2, B=1 to 32, T=256: batch sizes" in page and "out of memory" in page
    assert page.count("b, B=2") > 2 and "b, B=8" not in page and "Not finished" not in page
    tables = markdown(*read_climb(folder)).split("\n")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables]
    assert cells[0] == ["", *(f"B={2**k}" for k in range(6)), "largest B"]
    assert [line[-1] for line in cells[2:8:2]] == ["8", "2", "≥ 32"]
    assert cells[9] == ["gain over the rung above", "B=1", "B=2", "B=4"]  # all have 2; 4 is default
    assert cells[11] == ["b", "+100.0 % (2 rounds)", "+100.0 % (2 rounds)", "–"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_measured_by_default(device, monkeypatch):
    asked, given = argparse.Namespace(device=argparse.Namespace(type=device), batch_size=6), []
    asked.steps = 20
    monkeypatch.setattr(batch.cli, "parse_args", lambda *_: asked)
    monkeypatch.setattr(climb, "prepare_and_run", lambda *words: given.append(words[1:]))
    for most in ([], ["--max-batch", "4"], ["--max-batch", "6"]):
        main(["batch", *most])
    (kind, paths, sizes), (_, _, less), (_, _, same) = given
    numbers, most = ((0, 3, 10, 12), 16) if device == "cpu" else ((0, 3, 10, 10), 256)
    assert kind == "batch" and tuple(map(scripts.number_of, paths)) == numbers
    assert sizes[:5] == [1, 2, 4, 6, 8] and sizes[-1] == most and less == [1, 2, 4]
    assert same == [1, 2, 4, 6]
