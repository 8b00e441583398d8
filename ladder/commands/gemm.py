"""The rate of a large matmul: the peak for MFU on a device whose data sheet is not known.

python -m ladder.commands.gemm [--device DEVICE]     prints one line of JSON
"""

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ladder.cli import GPUS, add_flags, pick_device
from ladder.commands import program
from ladder.commands.process import first_line
from ladder.machine import device_name, half_precision

WARMUP_SECONDS = 1  # an idle GPU stands at a fraction of its clock
BATCHES, AT_ONCE = 15, 10
COPIED = 2**28  # bytes: more than any cache holds
MOST_SECONDS = 5  # of a CPU that only emulates bfloat16
CLOCKS = "clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw,power.limit"
CLOCKS += ",clocks_throttle_reasons.active"  # bits: tables.SLOWED_BY


def matmul_flops(device: torch.device, dtype: torch.dtype, n: int) -> float:
    """FLOP/s of an n x n x n matmul of random numbers: 2n³ over the median time."""
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    keep_busy(a, b, WARMUP_SECONDS)
    times, end = [], time.perf_counter() + MOST_SECONDS
    while len(times) < BATCHES and (not times or time.perf_counter() < end):
        times.append(seconds(lambda: a @ b, device)[0])
    return 2 * n**3 / statistics.median(times)


def at_peak(device: torch.device) -> tuple[torch.dtype, int]:
    """Which numbers, and how many in a row, show what a device can multiply."""
    return half_precision(device), 2048 if device.type == "cpu" else 8192


def keep_busy(a: torch.Tensor, b: torch.Tensor, at_least: float) -> None:
    """Multiply a and b for so many seconds, and once in any case."""
    end = time.perf_counter() + at_least
    seconds(lambda: a @ b, a.device)
    while time.perf_counter() < end:
        seconds(lambda: a @ b, a.device)


def seconds(call: Callable, device: torch.device) -> tuple[float, float]:
    """Of one call: on the device, and until Python has launched it.

    On CUDA by the device's own clock over ten in a row: their launches hide behind the kernels.
    """
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        host = time.perf_counter() - start
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter() - start, host
    with torch.cuda.device(device):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        start = time.perf_counter()
        for _ in range(AT_ONCE):
            call()
        host = (time.perf_counter() - start) / AT_ONCE
        after.record()
        after.synchronize()
    return before.elapsed_time(after) / 1e3 / AT_ONCE, host


def copy_rate() -> float:
    """Bytes per second that a CPU copies, read and written, over the median time."""
    source, target = torch.ones(2, COPIED, dtype=torch.uint8)
    times = (seconds(lambda: target.copy_(source), source.device)[0] for _ in range(BATCHES))
    return 2 * COPIED / statistics.median(times)


def clocks(device: torch.device) -> str:
    """Clock rates: of a CPU's cores right now, of a GPU while it multiplies at its peak.

    With those come an NVIDIA GPU's highest clock, its temperature in °C and its power; of AMD's,
    the library behind amd-smi tells PyTorch the clock and the power.
    """
    if device.type != "cuda":
        cpuinfo = Path("/proc/cpuinfo")
        found = re.findall(r"cpu MHz\s*: (\d+)", cpuinfo.read_text()) if cpuinfo.exists() else []
        return ", ".join(f"{mhz} MHz" for mhz in found) or "unknown"
    dtype, n = at_peak(device)
    a = torch.randn(n, n, device=device, dtype=dtype)
    keep_busy(a, a, WARMUP_SECONDS)
    if torch.version.hip:
        try:
            watts = torch.cuda.power_draw(device) / 1e3
            return f"clocks.sm {torch.cuda.clock_rate(device)} MHz, power.draw {watts:.0f} W"
        except (ImportError, RuntimeError):  # of amdsmi, which PyTorch's wheels come without
            return "unknown"
    # By its own number: nvidia-smi counts all GPUs, torch those in CUDA_VISIBLE_DEVICES.
    which = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = [f"--query-gpu={CLOCKS}", "--format=csv,noheader", which]
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(first_line, "nvidia-smi", *query)
        while not asked.done():
            keep_busy(a, a, 0)
    values = asked.result().split(", ")
    if len(values) != len(CLOCKS.split(",")):
        return "unknown"
    return ", ".join(map(" ".join, zip(CLOCKS.split(","), values, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, "device")
    parser.add_argument("--again", action="store_true", help="without FP32 and the copy")
    args = parser.parse_args()
    device = pick_device(args.device)
    dtype, n = at_peak(device)
    facts = {
        "device": device_name(device),
        "peak_flops": round(matmul_flops(device, dtype, n)),
        "peak_dtype": str(dtype).removeprefix("torch."),
        "peak_shape": [n, n, n],
        "clocks": clocks(device),
    }
    if device.type == "cpu" and not args.again:  # a GPU's are in the table
        facts["fp32_flops"] = round(matmul_flops(device, torch.float32, n))
        facts["copy_bytes_per_s"] = round(copy_rate())
    if device.type in GPUS:
        facts["free_bytes"] = torch.get_device_module(device).mem_get_info(device)[0]
    print("\n" + json.dumps(facts))  # a line of its own, whatever libraries print


if __name__ == "__main__":
    raise SystemExit(program(main))
