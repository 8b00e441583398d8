"""notebooks/ladder.ipynb, run from top to bottom as Colab and Kaggle would run it."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import version

import nbformat
import pytest
from conftest import ROOT, SMALL
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from ladder.commands.report import MARKER


def source():
    return nbformat.read(ROOT / "notebooks" / "ladder.ipynb", as_version=4)


def execute(folder, *, last=None, **parameters):
    """Run the cells in `folder`, up to `last`, with these parameters. Returns them by id."""
    notebook = source()
    if last:
        ids = [cell.id for cell in notebook.cells]
        notebook.cells = notebook.cells[: ids.index(last) + 1]
    assert parameters.keys() <= {*re.findall(r"^(\w+) =", notebook.cells[0].source, re.MULTILINE)}
    given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    notebook.cells.insert(1, nbformat.v4.new_code_cell(given, id="given"))
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


@pytest.fixture
def repository(tmp_path):
    """A repository to clone: what git would take of this checkout, as one commit."""
    folder = tmp_path / "repository"
    listed = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed, text=True).split("\0")):
        if (ROOT / name).is_file():  # not deleted
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    for words in (["init"], ["add", "--all"], [*who, "commit", "--message=all"]):
        subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)
    return folder.as_uri()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An environment of the kernel's own, by its folder of packages: it finds those of this one,
    and takes what the notebook installs. Pip has no network."""
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    found = [path for path in sys.path if path.endswith("-packages")]
    (site / "found.pth").write_text("\n".join(found) + "\n")
    python = tmp_path / "venv" / "bin" / "python"
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    facts = {"argv": command, "display_name": "Python 3", "language": "python"}
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps(facts))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # `ladder` comes from the clone
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads it so: 0 is no isolation
    return site


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(site, repository, shard, tmp_path):
    (work := tmp_path / "work").mkdir()
    (drive := tmp_path / "drive").mkdir()
    (drive / "kept.log").touch()
    flags = " ".join([*SMALL, "--steps", "4", "--data", str(shard)])
    cells = execute(work, REPOSITORY=repository, FLAGS=flags, RUNGS="0 1 3", KEEP=str(drive))
    checkout = work / "gpt2-speedup-ladder"
    printed = {name: "".join(out.get("text", "") for out in cell.get("outputs", []))
               for name, cell in cells.items()}  # fmt: skip

    assert f"PyTorch is still {version('torch')}." in printed["install"]
    assert not any(path.name.startswith("torch") for path in site.iterdir())
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
