"""`ladder climb --batch-sizes`: rungs at several B, as one more kind of climb."""

import re

import pytest
from climbs import FOUND, LOG

from ladder.cli import pick_device
from ladder.commands.main import main
from ladder.machine import device_name
from ladder.measure import rounds
from ladder.measure.climb import Climb
from ladder.measure.rows import read_climb
from ladder.show.tables import markdown

# It leaves a log at the last B of its command line, and fails at some B. It has a compile cache for
# each B.
SCRIPT = """import os, sys
B = int([word for word in sys.argv if word.startswith("--batch-size=")][-1].partition("=")[2])
assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(f"_B{{B}}")
if B {when}:
    {fail}
open(sys.argv[-1] + "/x.log", "w").write({text!r}.replace(" B=4 ", f" B={{B}} "))
"""


MEMORY = "raise SystemExit('error out of memory: try less')"
KILLED = "os.kill(os.getpid(), 9)"


@pytest.fixture
def batch_folder(tmp_path, monkeypatch, capsys):
    """A batch of three scripts: a runs up to B=8, b, twice as fast, up to 2, and c but at 2."""
    found = FOUND | {"device": device_name(pick_device(None))}
    monkeypatch.setattr(rounds, "large_matmul", lambda *_: {**found})
    twice = re.sub(r"\| dt +([\d.]+)", lambda dt: f"| dt {float(dt[1]) / 2}", LOG)
    own = {"a": ("> 8", MEMORY, LOG), "b": ("> 2", KILLED, twice), "c": ("== 2", "1 / 0", LOG)}
    words = []
    for name, (when, fail, text) in own.items():
        path = tmp_path / f"{name}.py"
        path.write_text(SCRIPT.format(when=when, fail=fail, text=text))
        words.append(str(path))
    words += ["--batch-sizes", *map(str, (4, 1, 2, 8, 16, 32)), "--rounds=2"]
    assert main(["climb", *words, "--out", str(tmp_path / "out")]) == 0
    return tmp_path / "out"


def test_memory_ends_a_rung_the_others_go_on_and_resume_runs_nothing_twice(batch_folder, capsys):
    out = capsys.readouterr().out
    first = "a_B1 b_B1 c_B1 a_B2 b_B2 c_B2 a_B4 b_B4 c_B4 a_B8 c_B8 a_B16 c_B16 c_B32"
    second = "c_B32 c_B16 c_B8 a_B8 c_B4 a_B4 c_B2 b_B2 a_B2 c_B1 b_B1 a_B1"
    for number, names in ((1, first), (2, second)):
        begun = re.findall(rf"^(\w+), round {number} of 2, running since", out, re.M)
        assert begun == names.split()
    assert "b_B4, round 1 of 2: killed by SIGKILL, as where memory is full (8 of 29 " in out
    failures = dict.fromkeys(["b_B4.r1", "a_B16.r1"], "out of memory")
    why = "ZeroDivisionError: division by zero"
    both = {"c_B2.r1": why, "c_B2.r2": why}
    assert Climb.load_from(batch_folder).failures == failures | both
    code = batch_folder / "code"
    (code / "c.py").write_text((code / "a.py").read_text())
    assert main(["climb", "--resume", str(batch_folder)]) == 0  # what failed otherwise is due
    begun = re.findall(r"(\w+), round (\d) of 2, running", capsys.readouterr().out)
    assert begun == [("c_B2", "1"), ("c_B2", "2")]
    assert Climb.load_from(batch_folder).failures == failures


def test_the_table_of_a_batch(batch_folder):
    climb, rows = read_climb(batch_folder)
    lines = markdown(climb, rows).split("\n")
    assert lines[2].endswith(" 8 |")
    assert lines[4] == "| b, tok/s | 95 | 190 | out of memory | – | – | – | 2 |"
    assert lines[6].endswith(" ≥ 32 |")
    assert not any(row.gain or row.total for row in rows)
