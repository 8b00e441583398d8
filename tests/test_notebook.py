"""notebooks/ladder.ipynb, run from top to bottom as Colab and Kaggle would run it."""

import json
import re

import nbformat
import pytest
from helpers import SMALL
from nbclient import NotebookClient

from ladder.checkout import ROOT
from ladder.log import read_log
from ladder.measure.rows import read_climb


def source():
    return nbformat.read(ROOT / "notebooks" / "ladder.ipynb", as_version=4)


def test_outputs_in_git_are_of_one_run_and_name_no_folder_of_its_machine():
    cells = [cell for cell in source().cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    saved = json.dumps([cell.outputs for cell in cells])
    assert "tok/s" in saved and '"output_type": "error"' not in saved
    assert not re.search(r"(?<![\w.])/(home|root|tmp|Users|content|kaggle)/", saved)
    assert len(saved) < 50_000  # so without the page of the last cell


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(shard, tmp_path, monkeypatch):
    """In a clone of what git has here; but for `install`, which would change what is installed, and
    for `ladder doctor`, which compiles for minutes and has tests of its own."""
    drive, checkout = tmp_path / "drive", tmp_path / "gpt2-speedup-ladder"
    drive.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(checkout))  # `ladder` comes from the clone
    flags = " ".join([*SMALL, "--steps", "4", "--data", str(shard)])
    given = dict(REPOSITORY=ROOT.as_uri(), FLAGS=flags, RUNGS="0 1 3", KEEP=str(drive))
    notebook = source()
    cells = {cell.id: cell for cell in notebook.cells}
    cells["parameters"].source = "\n".join(f"{name} = {value!r}" for name, value in given.items())
    del cells["install"], cells["run-doctor"]
    notebook.cells = list(cells.values())
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_name="python3", timeout=900, resources=where).execute()

    printed = cells["compare"].outputs[0].text
    for stem in ("baseline", "03_bf16_autocast", "05_torch_compile"):
        (path,) = (checkout / "runs").glob(f"{stem}-*.log")
        assert f"{read_log(path).result['median_ms']:.1f} ms" in printed
    (climb,) = drive.glob("climb-*")
    _, rows = read_climb(climb)
    assert [row.name for row in rows] == ["baseline", "01_weight_tying", "03_bf16_autocast"]
    assert climb.name in (checkout / "report.html").read_text("utf-8")
