"""`ladder diff`."""

import shutil
import subprocess

from ladder.checkout import ROOT
from ladder.commands.main import main
from ladder.measure.scripts import rungs


def test_diff_shows_the_note_and_then_the_one_change(capsys):
    assert main(["diff", "torch compile"]) == 0
    said, _, patch = capsys.readouterr().out.partition("\n--- ")
    assert (
        said.startswith("From speedups/README.md, ") and "\nChange: " in said and "\nWhy: " in said
    )
    _, *lines = patch.splitlines()[1:]
    listed, change = [line for line in lines if line[0] in "+-"]
    assert listed.startswith("+05 torch.compile: ")
    assert change.startswith("+        model = torch.compile(model)")


def test_diff_of_any_two_is_a_patch_that_applies(tmp_path, monkeypatch, capsys):
    """Also on a narrow terminal, where no line may be wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.chdir(ROOT)
    assert main(["diff", "baseline.py", "10"]) == 0
    shutil.copy(ROOT / "baseline.py", tmp_path)
    patch = capsys.readouterr().out.replace("+++ speedups/10_fused_adamw.py", "+++ baseline.py")
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=patch, text=True, check=True)
    assert (tmp_path / "baseline.py").read_text() == rungs()[10].read_text()
