"""A log names what ran: a script does not run with another clone's `ladder`."""

import os
import shutil

import pytest
from helpers import SMALL, run_script

from ladder.files import ROOT


@pytest.fixture
def clone(tmp_path):
    """Another clone, with as much as a rung needs."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "ladder", clone / "ladder")
    shutil.copytree(ROOT / "data", clone / "data")
    (clone / "speedups").mkdir()
    shutil.copy(ROOT / "baseline.py", clone)
    shutil.copy(ROOT / "speedups" / "01_weight_tying.py", clone / "speedups")
    return clone


def run(script, tmp_path, package):
    """Run a script with the `ladder` that is in the folder `package`."""
    flags = [*SMALL, "--steps", 1, "--log-dir", tmp_path / "runs"]
    return run_script(script, *flags, env={"PYTHONPATH": str(package)})


@pytest.mark.parametrize("name", ["speedups/01_weight_tying.py", "data/prepare.py"])
def test_a_script_of_another_clone_is_refused(name, clone, tmp_path):
    script = clone / name
    if name == "data/prepare.py":
        done = run_script(script, env={"PYTHONPATH": str(ROOT)})
    else:
        done = run(script, tmp_path, ROOT)
    is_in = f"{script.name} is in {clone}, but this `ladder` is that of {ROOT}: PYTHONPATH={clone}"
    assert done.returncode == 2
    assert done.stderr == f"error {is_in} runs that one's; or `pip install -e {clone}`\n"
    assert not (tmp_path / "runs").exists() and not done.stdout


def test_a_climbs_copy_of_the_code_runs_only_with_its_own_package(clone, tmp_path):
    """It lies in a clone, but has no commands."""
    code = clone / "runs" / "climb-1" / "code"
    for name in ("ladder", "speedups", "data"):
        shutil.copytree(clone / name, code / name)
    shutil.rmtree(code / "ladder" / "commands")
    shutil.copy(clone / "baseline.py", code)
    script = code / "speedups" / "01_weight_tying.py"
    assert run(script, tmp_path, code).returncode == 0
    assert f"is in {code}, but" in run(script, tmp_path, clone).stderr


def test_a_script_from_outside_runs(tmp_path):
    script = shutil.copy(ROOT / "baseline.py", tmp_path / "my_idea.py")
    assert run(script, tmp_path, ROOT).returncode == 0


def test_installed_without_e(clone, tmp_path):
    """As pip install . leaves it: the package alone, in another folder."""
    package = tmp_path / "site-packages"
    shutil.copytree(ROOT / "ladder", package / "ladder")
    done = run(clone / "speedups" / "01_weight_tying.py", tmp_path, package)
    assert done.returncode == 2 and done.stderr.endswith(f"or `pip install -e {clone}`\n")
    script = shutil.copy(ROOT / "baseline.py", tmp_path / "my_idea.py")
    done = run(script, tmp_path, package)
    assert done.returncode == 2
    how = "clone the repository, and `pip install -e .` in it"
    assert done.stderr == f"error `ladder` works on the scripts, which are not here: {how}\n"
    assert os.listdir(package) == ["ladder"]
