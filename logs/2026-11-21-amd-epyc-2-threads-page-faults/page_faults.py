"""Page faults of one training step of rungs 10 and 11, GPT-2 124M at B=4, T=256 on a CPU.

    python page_faults.py speedups/10_fused_adamw.py
    python page_faults.py speedups/11_keep_memory.py

Each in a process of its own. Prints the median of what the system counts for this process (minor
faults, getrusage) between the two clock readings of steps 4 to 9. A fault brings one page of 4 KiB,
where transparent huge pages are for those who ask only, as here.
"""

import importlib.util
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

counts = []
clock = time.perf_counter


def counting_clock():
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return clock()


path = Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("script", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.time = type("Time", (), {"perf_counter": staticmethod(counting_clock)})
module.main(["--steps", "9", "--log-dir", tempfile.mkdtemp(), "--device", "cpu"])
steps = [end - start for start, end in zip(counts[::2], counts[1::2], strict=True)]
print(f"{path.stem}: {statistics.median(steps[3:9]):.0f} page faults a step", file=sys.stderr)
