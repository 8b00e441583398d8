"""The counted work of a training step, and an estimate of its time: the roofline.

work.json has the FLOPs and bytes of each script's step for GPT-2 124M: dev/count_work.py counts
them, docs/measuring.md has the method.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ladder.cards import find_gpu
from ladder.measure.folder import Climb
from ladder.measure.rates import rates_of

WORK = Path(__file__).with_name("work.json")
MATMULS = ("linear", "attention")
PARTS = (*MATMULS, "other", "optimizer")
# Not calculated: the compiler may pad the matmul by itself that this rung pads.
AS_BEFORE = "07_vocab_50304"
# The T behind the counts. A CPU's steps are counted with its own autocast and kernels.
SIZES = {"cuda": 1024, "cpu": 256}


@dataclass
class Work:
    """The work of one step of a rung."""

    unit: str  # that multiplies its matrices, as in `rates_of`
    flops: dict[str, int]  # of each of MATMULS
    bytes: dict[str, int]  # of each of PARTS
    kernels: int


@cache
def counted() -> dict[str, dict]:
    """work.json: of each kind of device and rung, a constant and a slope in B for each quantity."""
    return json.loads(WORK.read_text("utf-8"))


def work(B: int, device: str = "cuda") -> dict[str, Work]:
    """The work of a step of each rung, by stem."""
    found = {}
    for stem, counts in counted()[device].items():
        at_B = {}
        for key in counts.keys() - {"unit", "code"}:
            constant, slope = counts[key]
            at_B[key] = constant + B * slope
        found[stem] = Work(
            unit=counts["unit"],
            flops={part: at_B[f"{part}_flops"] for part in MATMULS},
            bytes={part: at_B[f"{part}_bytes"] for part in PARTS},
            kernels=at_B["kernels"],
        )
    return found


def roofline_ms(step: Work, rates: dict[str, float]) -> list[float]:
    """Milliseconds of each of PARTS; `rates` are in TFLOP/s by unit, and `bandwidth` in GB/s."""
    parts = []
    for part in PARTS:
        ms = step.bytes[part] / rates["bandwidth"] / 1e6
        if part in MATMULS:
            ms = max(ms, step.flops[part] / rates[step.unit] / 1e9)
        parts.append(ms)
    return parts


def roofline_of(stem: str, run: dict, climb: Climb) -> list[float] | None:
    """roofline_ms of a step in a climb, by its run line and climb; None if it is not known.

    Known is GPT-2 124M: at T=1024 on a GPU with all rates in the table, and at T=256 on a CPU whose
    matmuls and copy the climb measured.
    """
    gpu = find_gpu(run["device"])
    if gpu and gpu.bandwidth:
        device = "cuda"
        rates = rates_of(gpu)
    elif climb.rate("copy_bytes_per_s") and climb.peak_dtype == "bfloat16":
        device = "cpu"
        fp32 = climb.rate("fp32_flops") / 1e12
        rates = {
            "fp32": fp32,
            "tf32": fp32,  # it has no TF32 units
            "half": climb.rate("peak_flops") / 1e12,
            "bandwidth": climb.rate("copy_bytes_per_s") / 1e9,
        }
    else:
        return None
    step = work(run["B"], device).get(stem)
    if step is None or run["model"] != "gpt2" or run["T"] != SIZES[device]:
        return None
    return roofline_ms(step, rates)
