"""notebooks/ladder.ipynb, run from top to bottom as Colab and Kaggle would run it."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import version

import nbformat
import pytest
from conftest import ROOT, SMALL
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from ladder.commands.report import MARKER

NOTEBOOK = ROOT / "notebooks" / "ladder.ipynb"


def source():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_git_has_a_valid_notebook_without_outputs():
    found = source()
    nbformat.validate(found)
    for cell in found.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, cell.id


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A repository to clone: what git would take of this checkout, as one commit."""
    folder = tmp_path_factory.mktemp("from") / "repository"
    listed = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed, text=True).split("\0")):
        if (ROOT / name).is_file():  # not deleted
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def git(folder, *words):
    subprocess.run(["git", "-C", folder, *words], check=True)


def commit(folder):
    git(folder, "add", "--all")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    git(folder, *who, "commit", "--quiet", "--message=all")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(last, **parameters): the cells up to this one, executed, by id; in an empty folder.

    The kernel has a Python environment of its own, which finds all packages of this one and takes
    what the notebook installs. Without a network: pip gets no index.
    """
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/*/site-packages")
    found = [path for path in sys.path if path.endswith("-packages")]
    (site / "found.pth").write_text("\n".join(found) + "\n")
    spec = tmp_path / "jupyter" / "kernels" / "fresh"
    spec.mkdir(parents=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    facts = {"argv": command, "display_name": "fresh", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(facts))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # `ladder` comes from the clone
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads it so: 0 is no isolation
    work = tmp_path / "work"
    work.mkdir()

    def execute(last, **parameters):
        notebook = source()
        ids = [cell.id for cell in notebook.cells]
        notebook.cells = notebook.cells[: ids.index(last) + 1]
        at = [cell.metadata.get("tags") for cell in notebook.cells].index(["parameters"])
        names = set(re.findall(r"^(\w+) =", notebook.cells[at].source, flags=re.MULTILINE))
        assert parameters.keys() <= names
        given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        notebook.cells.insert(at + 1, nbformat.v4.new_code_cell(given, id="given"))
        where = {"metadata": {"path": str(work)}}
        NotebookClient(notebook, kernel_name="fresh", timeout=900, resources=where).execute()
        return {cell.id: cell for cell in notebook.cells}

    execute.site, execute.work = site, work
    return execute


def printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(run, clone, shard):
    flags = " ".join([*SMALL, "--steps", "4", "--data", str(shard)])
    last = source().cells[-1].id
    cells = run(last, REPOSITORY=clone.as_uri(), FLAGS=flags, RUNGS="0 1 3")
    checkout = run.work / "gpt2-speedup-ladder"

    assert f"PyTorch is still {version('torch')}." in printed(cells["install"])
    installed = [path.name for path in run.site.iterdir()]
    assert any("gpt2_speedup_ladder" in name for name in installed)
    assert not any(name.startswith("torch") for name in installed)
    assert "The rungs on" in printed(cells["run-doctor"])

    for cell, change in (
        ("run-baseline", ""),
        ("first-rung", "+            with torch.autocast("),
        ("second-rung", "+        model = torch.compile(model)"),
    ):
        text = printed(cells[cell])
        result = json.loads(re.search(r"^RESULT (.*)", text, flags=re.MULTILINE)[1])
        assert result["status"] == "ok" and change in text
        line = next(x for x in printed(cells["compare"]).splitlines() if result["script"] in x)
        assert f"{result['median_ms']:.1f} ms" in line and f"{result['tok_per_s']:,.0f}" in line

    (folder,) = (checkout / "runs").glob("climb-*")
    facts = json.loads((folder / "climb.json").read_text())
    assert facts["scripts"][-1] == "speedups/03_bf16_autocast.py" and not facts["failures"]
    assert "03 bf16 autocast" in printed(cells["run-climb"])
    (shown,) = [o for o in cells["run-report"].outputs if o.output_type == "execute_result"]
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown.data["text/html"])[1])
    assert page == (checkout / "report.html").read_text("utf-8")
    assert MARKER in page and folder.name in page


def test_a_pytorch_that_the_ladder_does_not_take_is_kept_and_the_notebook_stops(
    run, clone, tmp_path, monkeypatch
):
    """Pip has a torch 99 at hand, and the clone asks for it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    files = {"METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 99\n", "RECORD": ""}
    files["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheels / "torch-99-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(f"torch-99.dist-info/{name}", text)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    other = shutil.copytree(clone, tmp_path / "other")
    wanted = other / "pyproject.toml"
    text, n = re.subn(r'"torch>=[^"]*"', '"torch>=99"', wanted.read_text())
    assert n == 1
    wanted.write_text(text)
    commit(other)
    with pytest.raises(CellExecutionError, match=r"(?s)conflict.*pip says why above"):
        run("install", REPOSITORY=other.as_uri())
    assert not list(run.site.glob("torch*"))


def test_without_an_address_it_says_what_to_do(run):
    with pytest.raises(CellExecutionError, match="Write the address of the repository"):
        run("clone")
