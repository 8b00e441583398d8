"""notebooks/ladder.ipynb, run from top to bottom as Colab and Kaggle would run it."""

import nbformat
import pytest
from helpers import SMALL
from nbclient import NotebookClient

from ladder.checkout import ROOT
from ladder.measure.rows import read_climb


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(shard, tmp_path, monkeypatch):
    """In a clone of what git has here; but for `install`, which would change what is installed, and
    for `ladder doctor`, which compiles for minutes and has tests of its own."""
    drive, checkout = tmp_path / "drive", tmp_path / "gpt2-speedup-ladder"
    drive.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(checkout))  # `ladder` comes from the clone
    flags = " ".join([*SMALL, "--steps", "4", "--data", str(shard)])
    given = dict(REPOSITORY=ROOT.as_uri(), FLAGS=flags, RUNGS="0 1 3", KEEP=str(drive))
    notebook = nbformat.read(ROOT / "notebooks" / "ladder.ipynb", as_version=4)
    cells = {cell.id: cell for cell in notebook.cells}
    cells["parameters"].source = "\n".join(f"{name} = {value!r}" for name, value in given.items())
    del cells["install"], cells["run-doctor"]
    notebook.cells = list(cells.values())
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_name="python3", timeout=900, resources=where).execute()

    (climb,) = drive.glob("climb-*")
    _, rows = read_climb(climb)
    assert [row.name for row in rows] == ["baseline", "01_weight_tying", "03_bf16_autocast"]
    assert climb.name in (checkout / "report.html").read_text("utf-8")
