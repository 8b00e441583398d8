"""`ladder diff`."""

import shutil
import subprocess

from ladder.checkout import ROOT
from ladder.measure.scripts import rungs


def test_diff_shows_the_note_and_then_the_one_change(ladder):
    said, _, patch = ladder("diff", "torch compile").stdout.partition("\n--- ")
    assert said.startswith("Change: ") and "\nWhy: " in said
    _, *lines = patch.splitlines()[1:]
    listed, change = [line for line in lines if line[0] in "+-"]
    assert listed.startswith("+05 torch.compile: ")
    assert change.startswith("+        model = torch.compile(model)")


def test_diff_of_any_two_is_a_patch_that_applies(ladder, tmp_path, monkeypatch):
    """Also on a narrow terminal, where no line may be wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    done = ladder("diff", "baseline.py", 10)
    assert done.returncode == 0
    shutil.copy(ROOT / "baseline.py", tmp_path)
    patch = done.stdout.replace("+++ speedups/10_fused_adamw.py", "+++ baseline.py")
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=patch, text=True, check=True)
    assert (tmp_path / "baseline.py").read_text() == rungs()[10].read_text()
