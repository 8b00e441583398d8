"""The rate of a large matmul: the peak for MFU on a device whose data sheet is not known.

python -m ladder.commands.gemm [--device DEVICE]     prints one line of JSON
"""

import argparse
import json
import statistics
import sys
import time

import torch

from ladder.cli import add_flags, pick_device
from ladder.errors import BadInput
from ladder.machine import device_name

WARMUP, REPEATS = 3, 15


def matmul_flops(device: torch.device, dtype: torch.dtype, n: int) -> float:
    """FLOP/s of an n x n x n matmul of random numbers: 2n³ over the median time."""
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    times = []
    for _ in range(WARMUP + REPEATS):
        start = time.perf_counter()
        a @ b
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter() - start)
    return 2 * n**3 / statistics.median(times[WARMUP:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_flags(parser, "device")
    try:
        device = pick_device(parser.parse_args().device)
    except BadInput as error:
        print(f"error {error}", file=sys.stderr)
        raise SystemExit(2) from None
    n = 2048 if device.type == "cpu" else 8192
    rate = round(matmul_flops(device, torch.bfloat16, n))
    facts = {"device": device_name(device), "peak_flops": rate, "peak_dtype": "bfloat16"}
    print(json.dumps({**facts, "peak_shape": [n, n, n]}))
