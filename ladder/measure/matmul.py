"""The rate of a large matmul: the peak for MFU on a device whose data sheet is not known.

python -m ladder.measure.matmul [--device DEVICE]     prints one line of JSON
"""

import json
import statistics
import time
from collections.abc import Callable

import torch

from ladder.cli import parse_args
from ladder.machine import clocks, half_precision

WARMUP_SECONDS = 1  # an idle GPU stands at a fraction of its clock
TIMES, IN_A_ROW = 15, 10
COPIED = 2**28  # bytes: more than most caches hold


def matmul_flops(device: torch.device, dtype: torch.dtype, n: int) -> float:
    """FLOP/s of an n x n x n matmul of random numbers: 2n³ over the median time."""
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    return 2 * n**3 / median_seconds(lambda: a @ b, device)


def copy_rate(device: torch.device) -> float:
    """Bytes per second that are copied, read and written, over the median time."""
    source = torch.ones(COPIED, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * COPIED / median_seconds(lambda: target.copy_(source), device)


def median_seconds(call: Callable, device: torch.device) -> float:
    """The median over TIMES of the seconds of a call, after a warm-up."""
    end = time.perf_counter() + WARMUP_SECONDS
    while time.perf_counter() < end:
        seconds(call, device)
    return statistics.median(seconds(call, device) for _ in range(TIMES))


def seconds(call: Callable, device: torch.device) -> float:
    """Seconds of one call; on CUDA of ten in a row, whose launches hide behind the kernels."""
    calls = IN_A_ROW if device.type == "cuda" else 1
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return (time.perf_counter() - start) / calls


def main():
    device = parse_args(__doc__).device
    is_cpu = device.type == "cpu"
    n = 2048 if is_cpu else 8192
    rates = {"peak_flops": matmul_flops(device, half_precision(device), n)}
    if is_cpu:  # a GPU's are in the table
        rates["fp32_flops"] = matmul_flops(device, torch.float32, n)
        rates["copy_bytes_per_s"] = copy_rate(device)
    # A line of its own, whatever libraries print.
    print("\n" + json.dumps({"rates": rates, "clocks": clocks(device)}))


if __name__ == "__main__":
    main()
