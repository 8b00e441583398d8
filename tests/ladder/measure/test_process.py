"""process.py: Python in a process of its own."""

import subprocess
import sys

from ladder.files import ROOT
from ladder.measure.process import large_matmul

USED = """
import sys, time
from ladder.measure.process import run_python
before = time.process_time()
run_python(sys.argv[1])
print(time.process_time() - before)
"""


def test_while_another_process_runs_this_one_sleeps(tmp_path):
    """In a process of its own: that of the tests has threads, and much to collect."""
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(2)")
    done = subprocess.run([sys.executable, "-c", USED, script], cwd=ROOT, capture_output=True)
    assert float(done.stdout) < 0.03  # half a per cent, and what it takes to start one


# ------------------------------------------------------------------ matmul.py


def test_a_climb_gets_the_rates_of_a_cpu():
    """From a process of its own, whose last line they are."""
    measured = large_matmul(["--device=cpu"], ROOT)
    assert set(measured) == {"peak_flops", "fp32_flops", "copy_bytes_per_s"}
    assert min(measured.values()) > 1e6
