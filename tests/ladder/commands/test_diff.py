"""`ladder diff`."""

import shutil
import subprocess

import pytest

from ladder import files
from ladder.commands.diff import select
from ladder.files import ROOT
from ladder.measure import scripts
from ladder.measure.docstrings import docstring, parts_of
from ladder.measure.scripts import all_scripts, branch, number_of, rungs

NAMES = [path.relative_to(ROOT).as_posix() for path in all_scripts()]


def git(folder, *words):
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", "-C", folder, *me, *words], check=True, capture_output=True)


@pytest.fixture
def project(ladder, tmp_path, monkeypatch):
    """A copy of the scripts, committed to a git repository of its own; `ladder` runs there."""
    folder = tmp_path / "project"
    for name in ("speedups", "cpu", "candidates"):
        shutil.copytree(ROOT / name, folder / name, ignore=lambda *_: ["__pycache__"])
    shutil.copy(ROOT / "baseline.py", folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "as it is")
    monkeypatch.chdir(folder)
    for module in (files, scripts):
        monkeypatch.setattr(module, "ROOT", folder)
    return folder


def test_diff_shows_the_docstring_and_the_one_change(ladder):
    done = ladder("diff", 5)
    assert (done.status, done.stderr) == (0, "")
    head, _, patch = done.stdout.partition("\n\n--- speedups/04_residual_scaling.py\n")
    assert head == docstring(rungs()[5])
    _, _, *lines = patch.splitlines()
    (change,) = [line for line in lines if line[0] in "+-"]
    assert change.startswith("+        model = torch.compile(model)")


def test_diff_of_any_two_is_a_patch_that_applies(ladder, project, monkeypatch):
    """Also on a narrow terminal, where no line may be wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    top = NAMES[12]
    done = ladder("diff", "baseline.py", top)
    assert done.status == 0 and "Change:" not in done.stdout
    patch = done.stdout.replace(f"+++ {top}", "+++ baseline.py")
    (project / "change.patch").write_text(patch)
    git(project, "apply", "-p0", "change.patch")
    assert parts_of(project / "baseline.py")[1] == parts_of(project / top)[1]
    assert ladder("diff", 3, 3).stdout == "the code of the two is the same\n"


def test_a_rung_is_known_by_its_name(ladder):
    for name in ("06_flash_attention", "Flash attention"):
        assert ladder("diff", name).stdout == ladder("diff", 6).stdout
    done = ladder("diff", "ddp").stdout
    assert done.startswith("DDP\n") and f"--- {NAMES[10]}\n+++ ddp_run.py\n" in done


def test_a_range_of_numbers_names_candidates_too():
    last = number_of(branch("candidates")[-1])
    assert select([f"{last - 1}-{last}"]) == branch("candidates")[-2:]
