"""This machine's rates: of a large matmul, the peak for MFU on a device whose data sheet is not
known; on a CPU also of a copy, and of a matmul in FP32 if the first is in half precision.

python -m ladder.measure.matmul [--device DEVICE]     prints one line of JSON
"""

import json
from collections.abc import Callable

import torch
from torch.utils.benchmark import Timer

from ladder.cli import parse_args
from ladder.machine import half_precision

WARM_UP = 1  # seconds: an idle GPU stands at a fraction of its clock
SECONDS = 3  # of short measurements: one second may be a bad one, in which others use the machine
COPIED = 2**28  # bytes: more than most caches hold


def matmul_flops(device: torch.device, dtype: torch.dtype, n: int) -> float:
    """FLOP/s of an n x n x n matmul of random numbers: 2n³ over the least time."""
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    return 2 * n**3 / least_seconds(lambda: a @ b)


def copy_rate() -> float:
    """Bytes per second that a CPU copies, read and written, over the least time."""
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.ones(COPIED, dtype=torch.uint8)
    return 2 * COPIED / least_seconds(lambda: target.copy_(source))


def least_seconds(call: Callable) -> float:
    """The least seconds of a call, after a warm-up: a rate is a peak, what the machine can do.

    Timer waits for the device as it reads the clock, and makes several calls between two readings
    where a call is short."""
    threads = torch.get_num_threads()
    timer = Timer("call()", globals={"call": call}, num_threads=threads)
    timer.blocked_autorange(min_run_time=WARM_UP)
    return min(timer.blocked_autorange(min_run_time=SECONDS).times)


def main():
    device = parse_args(__doc__).device
    dtype = half_precision(device)
    is_cpu = device.type == "cpu"
    n = 2048 if is_cpu else 8192
    rates = {"peak_flops": matmul_flops(device, dtype, n)}
    if is_cpu:  # a GPU's are in the table
        if dtype != torch.float32:
            rates["fp32_flops"] = matmul_flops(device, torch.float32, n)
        rates["copy_bytes_per_s"] = copy_rate()
    # A line of its own, whatever libraries print.
    print("\n" + json.dumps(rates))


if __name__ == "__main__":
    main()
