"""process.py: Python in a process of its own."""

import os
import subprocess
import time

import pytest

from ladder.files import ROOT
from ladder.measure import process


@pytest.fixture
def sleeps(tmp_path):
    """A script that sleeps for two seconds."""
    path = tmp_path / "sleeps.py"
    path.write_text("import time; time.sleep(2)")
    return path


def test_a_module_of_a_copy_is_run_and_not_the_checkout_s(tmp_path, monkeypatch):
    """Nor has it the repository of the caller, such as a hook of git's."""
    copy = tmp_path / "10:21" / "ladder"
    copy.mkdir(parents=True)
    (copy / "__init__.py").touch()  # else a checkout on PYTHONPATH has the name
    (copy / "__main__.py").write_text("import os; print(__file__, os.environ.get('GIT_DIR'))")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GIT_DIR", "elsewhere")
    done = process.run_python("-m", "ladder", package=copy.parent)
    assert done.stdout == f"{copy}/__main__.py None\n"


def test_while_another_process_runs_this_one_sleeps(sleeps):
    before = os.times()
    assert process.run_python(sleeps).failure is None
    after = os.times()
    used = after.user + after.system - before.user - before.system
    assert used < 0.005 * (after.elapsed - before.elapsed) + 0.02  # and once to start it


def test_a_process_is_killed_when_its_time_is_over(sleeps):
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        process.run_python(sleeps, timeout=0.5)
    assert time.monotonic() - begun < 2
