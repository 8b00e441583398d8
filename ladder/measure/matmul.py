"""The rate of a large matmul: the peak for MFU on a device whose data sheet is not known.

python -m ladder.measure.matmul [--device DEVICE]     prints one line of JSON
"""

import json
import statistics
import time
from collections.abc import Callable

import torch

from ladder.cli import parse_args
from ladder.machine import clocks, device_name, half_precision

WARMUP_SECONDS = 1  # an idle GPU stands at a fraction of its clock
TIMES, IN_A_ROW = 15, 10
COPIED = 2**28  # bytes: more than most caches hold


def matmul_flops(device: torch.device, dtype: torch.dtype, n: int) -> float:
    """FLOP/s of an n x n x n matmul of random numbers: 2n³ over the median time."""
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    end = time.perf_counter() + WARMUP_SECONDS
    while time.perf_counter() < end:
        seconds(lambda: a @ b, device)
    return 2 * n**3 / median_seconds(lambda: a @ b, device)


def median_seconds(call: Callable, device: torch.device) -> float:
    """The median over TIMES of the seconds of a call."""
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


def copy_rate() -> float:
    """Bytes per second that a CPU copies, read and written, over the median time."""
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.ones(COPIED, dtype=torch.uint8)
    return 2 * COPIED / median_seconds(lambda: target.copy_(source), source.device)


def main():
    device = parse_args(__doc__).device
    dtype = half_precision(device)
    n = 2048 if device.type == "cpu" else 8192
    half = round(matmul_flops(device, dtype, n))
    rates = {"peak_flops": half}
    if device.type == "cpu":  # a GPU's are in the table
        rates["fp32_flops"] = half
        if dtype != torch.float32:
            rates["fp32_flops"] = round(matmul_flops(device, torch.float32, n))
        rates["copy_bytes_per_s"] = round(copy_rate())
    measured = {
        "device": device_name(device),
        "device_type": device.type,
        "peak_dtype": str(dtype).removeprefix("torch."),
        "clocks": clocks(device),
        "rates": rates,
    }
    print("\n" + json.dumps(measured))  # a line of its own, whatever libraries print


if __name__ == "__main__":
    main()
