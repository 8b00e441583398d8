"""`ladder climb --batch-sizes`: rungs at several B, as one more kind of climb."""

import re

from climbs import FOUND, LOG

from ladder.cli import pick_device
from ladder.commands.main import main
from ladder.machine import device_name
from ladder.measure import rounds
from ladder.measure.rows import read_climb
from ladder.show.tables import markdown

# It leaves a log at the B of its command line, and fails above some B. It has a compile cache for
# each B.
SCRIPT = """import os, sys
B = int(sys.argv[-3].removeprefix("--batch-size="))
assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(f"_B{{B}}")
if B > {largest}:
    {fail}
open(sys.argv[-1] + "/x.log", "w").write({text!r}.replace(" B=4 ", f" B={{B}} "))
"""


MEMORY = "raise SystemExit('error out of memory: try less')"
KILLED = "os.kill(os.getpid(), 9)"


def test_memory_ends_a_rung_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    """a runs up to B=8, b up to 2, and c at all of them."""
    found = FOUND | {"device": device_name(pick_device(None))}
    monkeypatch.setattr(rounds, "large_matmul", lambda *_: {**found})
    for name, largest, fail in (("a", 8, MEMORY), ("b", 2, KILLED), ("c", 99, "pass")):
        source = SCRIPT.format(largest=largest, fail=fail, text=LOG)
        (tmp_path / f"{name}.py").write_text(source)
    out = tmp_path / "out"
    scripts = sorted(map(str, tmp_path.glob("*.py")))
    words = f"--batch-sizes 4 1 2 8 16 32 --rounds=2 --out {out}"
    assert main(["climb", *scripts, *words.split()]) == 0
    said = capsys.readouterr().out
    first = "a_B1 b_B1 c_B1 a_B2 b_B2 c_B2 a_B4 b_B4 c_B4 a_B8 c_B8 a_B16 c_B16 c_B32"
    second = "c_B32 c_B16 c_B8 a_B8 c_B4 a_B4 c_B2 b_B2 a_B2 c_B1 b_B1 a_B1"
    for number, names in ((1, first), (2, second)):
        begun = re.findall(rf"^(\w+), round {number} of 2: ", said, re.M)
        assert begun == names.split()
    assert "b_B4, round 1 of 2: killed by SIGKILL, as where memory is full (8 of 29 " in said
    assert main(["climb", "--resume", str(out)]) == 0  # nothing is due
    assert ", round " not in capsys.readouterr().out
    climb, rows = read_climb(out)
    lines = markdown(climb, rows).split("\n")
    assert lines[2].endswith(" 8 |") and lines[6].endswith(" ≥ 32 |")
    assert lines[4].endswith(" | out of memory | – | – | – | 2 |")
