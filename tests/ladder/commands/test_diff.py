"""`ladder diff`."""

import shutil
import subprocess

from ladder.files import ROOT
from ladder.measure.docstrings import parts_of
from ladder.measure.scripts import rungs


def test_diff_shows_the_one_change_and_then_the_docstring(ladder):
    done = ladder("diff", "torch compile")
    patch, _, said = done.stdout.partition("\n\n05 torch.compile\n")
    _, _, _, *lines = patch.splitlines()
    (change,) = [line for line in lines if line[0] in "+-"]
    assert change.startswith("+        model = torch.compile(model)")
    assert "Change: " in said and "Effective: " not in said


def test_diff_of_any_two_is_a_patch_that_applies(ladder, tmp_path, monkeypatch):
    """Also on a narrow terminal, where no line may be wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    done = ladder("diff", "baseline.py", 10)
    assert done.returncode == 0 and "Change:" not in done.stdout
    shutil.copy(ROOT / "baseline.py", tmp_path)
    patch = done.stdout.replace("+++ speedups/10_fused_adamw.py", "+++ baseline.py")
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=patch, text=True, check=True)
    assert parts_of(tmp_path / "baseline.py")[1] == parts_of(rungs()[10])[1]
