"""notebooks/ladder.ipynb, run from top to bottom as Colab and Kaggle would run it."""

import html
import json
import re

import nbformat
import pytest
from conftest import ROOT, SMALL
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from ladder.commands.report import MARKER


def source():
    return nbformat.read(ROOT / "notebooks" / "ladder.ipynb", as_version=4)


def execute(folder, *, last=None, **parameters):
    """Run the cells in `folder`, up to `last`, with these parameters. Returns them by id.

    Not `install`, which would install what it finds there over what is installed here.
    """
    cells = {cell.id: cell for cell in source().cells if cell.id != "install"}
    chosen = [*cells][: [*cells].index(last) + 1] if last else cells
    given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    cells["parameters"].source += f"\n{given}"
    notebook = nbformat.v4.new_notebook(cells=[cells[name] for name in chosen])
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, kernel_name="python3", timeout=900, resources=where).execute()
    return {cell.id: cell for cell in notebook.cells}


def test_git_has_a_valid_notebook_without_outputs():
    nbformat.validate(source())
    assert source().cells[0].metadata["tags"] == ["parameters"]
    for cell in source().cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, cell.id


def test_without_an_address_it_says_what_to_do(tmp_path):
    with pytest.raises(CellExecutionError, match="Write the address of the repository"):
        execute(tmp_path, last="clone")


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(shard, tmp_path, monkeypatch):
    """In a clone of what git has here."""
    drive, checkout = tmp_path / "drive", tmp_path / "gpt2-speedup-ladder"
    drive.mkdir()
    (drive / "kept.log").touch()
    monkeypatch.setenv("PYTHONPATH", str(checkout))  # `ladder` comes from the clone
    given = dict(REPOSITORY=ROOT.as_uri(), RUNGS="0 1 3", KEEP=str(drive))
    flags = " ".join([*SMALL, "--steps", "4", "--data", str(shard)])
    cells = execute(tmp_path, FLAGS=flags, **given)
    printed = {name: "".join(out.get("text", "") for out in cell.get("outputs", []))
               for name, cell in cells.items()}  # fmt: skip
    for cell, change in (
        ("run-baseline", ""),
        ("first-rung", "+            with torch.autocast("),
        ("second-rung", "+        model = torch.compile(model)"),
    ):
        result = json.loads(re.search(r"^RESULT (.*)", printed[cell], flags=re.MULTILINE)[1])
        assert result["status"] == "ok" and change in printed[cell]
        line = next(x for x in printed["compare"].splitlines() if result["script"] in x)
        assert f"{result['median_ms']:.1f} ms" in line and f"{result['tok_per_s']:,.0f}" in line

    (climb,) = (drive).glob("climb-*")
    facts = json.loads((climb / "climb.json").read_text())
    assert facts["scripts"][-1] == "speedups/03_bf16_autocast.py" and not facts["failures"]
    assert (checkout / "runs" / "kept.log").exists() and not (climb / "cache").exists()
    (shown,) = [o for o in cells["run-report"].outputs if o.output_type == "execute_result"]
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown.data["text/html"])[1])
    assert page == (checkout / "report.html").read_text("utf-8")
    assert MARKER in page and climb.name in page
