"""This machine's rates: of a large matmul, the peak for MFU on a device whose data sheet is not
known; on a CPU also of one in FP32, and of a copy.

python -m ladder.measure.matmul [--device DEVICE]     prints one line of JSON
"""

import json
from collections.abc import Callable

import torch
from torch.utils.benchmark import Timer

from ladder.cli import parse_args
from ladder.machine import half_precision

SECONDS = 1  # of a measurement, and of the warm-up: an idle GPU stands at a fraction of its clock
COPIED = 2**28  # bytes: more than most caches hold


def matmul_flops(device: torch.device, dtype: torch.dtype, n: int) -> float:
    """FLOP/s of an n x n x n matmul of random numbers: 2n³ over the median time."""
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    return 2 * n**3 / median_seconds(lambda: a @ b)


def copy_rate() -> float:
    """Bytes per second that a CPU copies, read and written, over the median time."""
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.ones(COPIED, dtype=torch.uint8)
    return 2 * COPIED / median_seconds(lambda: target.copy_(source))


def median_seconds(call: Callable) -> float:
    """The median seconds of a call, after a warm-up. Timer waits for the device as it reads the
    clock, and makes several calls between two readings where a call is short."""
    threads = torch.get_num_threads()
    timer = Timer("call()", globals={"call": call}, num_threads=threads)
    timer.blocked_autorange(min_run_time=SECONDS)
    return timer.blocked_autorange(min_run_time=SECONDS).median


def main():
    device = parse_args(__doc__).device
    is_cpu = device.type == "cpu"
    n = 2048 if is_cpu else 8192
    rates = {"peak_flops": matmul_flops(device, half_precision(device), n)}
    if is_cpu:  # a GPU's are in the table
        rates["fp32_flops"] = matmul_flops(device, torch.float32, n)
        rates["copy_bytes_per_s"] = copy_rate()
    # A line of its own, whatever libraries print.
    print("\n" + json.dumps(rates))


if __name__ == "__main__":
    main()
