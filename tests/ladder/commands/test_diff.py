"""`ladder diff`."""

import shutil
import subprocess

from helpers import rung

from ladder.files import ROOT
from ladder.measure.docstrings import docstring, parts_of
from ladder.measure.scripts import rungs


def test_diff_shows_the_one_change_and_then_the_docstring(ladder, monkeypatch):
    """The docstring is wrapped to the terminal's width, and leaves out what is for tools."""
    monkeypatch.setenv("COLUMNS", "60")
    done = ladder("diff", 5)
    assert (done.status, done.stderr) == (0, "")
    patch, _, said = done.stdout.partition("\n\n05 torch.compile\n")
    before, _, _, *lines = patch.splitlines()
    assert before == "--- speedups/04_residual_scaling.py"
    (change,) = [line for line in lines if line[0] in "+-"]
    assert change.startswith("+        model = torch.compile(model)")
    text, for_tools = docstring(rungs()[5]).split("\nEffective:")
    assert for_tools and said.split() == text.split()[2:]
    widths = [len(line) for line in said.splitlines()]
    assert max(widths) <= 60 and sum(widths) / len(widths) > 40  # no stumps
    assert ladder("diff", 4, 5).stdout == done.stdout


def test_diff_of_any_two_is_a_patch_that_applies(ladder, tmp_path, monkeypatch):
    """Also on a narrow terminal, where no line may be wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    done = ladder("diff", "baseline.py", 10)
    assert done.status == 0 and "Change:" not in done.stdout
    shutil.copy(ROOT / "baseline.py", tmp_path)
    patch = done.stdout.replace("+++ speedups/10_fused_adamw.py", "+++ baseline.py")
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=patch, text=True, check=True)
    assert parts_of(tmp_path / "baseline.py")[1] == parts_of(rung(10))[1]
    assert ladder("diff", 3, 3).stdout == "the code of the two is the same\n"


def test_a_rung_is_known_by_its_name(ladder):
    assert ladder("diff", "Flash attention").stdout == ladder("diff", 6).stdout
    done = ladder("diff", "ddp").stdout
    assert "\nDDP\n\nChange: " in done and "\n+++ ddp_run.py\n" in done
