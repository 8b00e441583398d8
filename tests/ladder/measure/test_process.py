"""process.py: Python in a process of its own."""

import subprocess
import time

import pytest

from ladder.files import ROOT
from ladder.measure import process


def test_a_module_of_a_copy_is_run_and_not_the_checkout_s(tmp_path, monkeypatch):
    (tmp_path / "ladder").mkdir()
    (tmp_path / "ladder" / "__init__.py").touch()  # else a checkout on PYTHONPATH has the name
    (tmp_path / "ladder" / "__main__.py").write_text("print(__file__)")
    monkeypatch.chdir(ROOT)
    done = process.run_python("-m", "ladder", package=tmp_path)
    assert done.stdout == f"{tmp_path}/ladder/__main__.py\n"


USED = """
import time
from ladder.measure.process import run_python
before = time.process_time()
run_python("-c", "import time; time.sleep(2)")
print(time.process_time() - before)
"""


def test_while_another_process_runs_this_one_sleeps():
    """In a process of its own: that of the tests has threads, and much to collect."""
    done = process.run_python("-c", USED)
    assert float(done.stdout) < 0.03  # half a per cent, and what it takes to start one


def test_a_process_is_killed_when_its_time_is_over():
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        process.run_python("-c", "import time; time.sleep(60)", timeout=0.5)
    assert time.monotonic() - begun < 20
