"""The counted work of a training step, and an estimate of its time: the roofline.

work.json has the FLOPs and bytes of each script's step for GPT-2 124M: dev/count_work.py counts
them, docs/roofline.md has the method.
"""

import json
from functools import cache
from pathlib import Path

from ladder.machine import find_gpu

WORK = Path(__file__).with_name("work.json")
PARTS = ("linear", "attention", "other", "optimizer")
LABELS = ("matmuls", "attention", "between them", "optimizer")
# The T at which steps are counted; of a CPU, with its own autocast and kernels.
SIZES = {"cuda": 1024, "cpu": 256}


@cache
def counted() -> dict[str, dict]:
    """work.json: of each kind of device and rung, a constant and a slope in B for each quantity."""
    return json.loads(WORK.read_text(encoding="utf-8"))


def work(B: int, device: str = "cuda") -> dict[str, dict]:
    """The work of a step of each rung, by stem: FLOPs, bytes and kernels, and the matmuls' unit."""

    def at(count):
        return count if isinstance(count, str) else count[0] + B * count[1]

    steps = counted()[device].items()
    return {stem: {kind: at(count) for kind, count in step.items()} for stem, step in steps}


def roofline_ms(step: dict, rates: dict[str, float]) -> tuple[float, ...] | None:
    """Milliseconds of each of PARTS; None if the device lacks the unit that the step multiplies on.

    `step` is one of `work`; `rates` are in TFLOP/s by unit, and `bandwidth` in GB/s.
    """
    if not (rate := rates[step["unit"]]):
        return None
    memory = {key: step[f"{key}_bytes"] / rates["bandwidth"] / 1e6 for key in PARTS}
    at_rate = {key: step[f"{key}_flops"] / rate / 1e9 for key in ("linear", "attention")}
    return tuple(max(memory[key], at_rate.get(key, 0)) for key in PARTS)


def roofline_of(stem: str, run: dict, climb: dict) -> tuple[float, ...] | None:
    """roofline_ms of a step in a climb, by its run line and climb.json; None if it is not known.

    Known is GPT-2 124M: at T=1024 on a GPU with all rates in the table, and at T=256 on a CPU whose
    matmuls and copy the climb measured.
    """
    gpu, device = find_gpu(run["device"]), "cuda"
    if gpu and gpu.bandwidth:
        rates = gpu._asdict()
    elif climb.get("copy_bytes_per_s") and climb.get("peak_dtype") == "bfloat16":
        device, fp32 = "cpu", climb["fp32_flops"] / 1e12  # it has no TF32 units
        rates = {"fp32": fp32, "tf32": fp32, "half": climb["peak_flops"] / 1e12}
        rates["bandwidth"] = climb["copy_bytes_per_s"] / 1e9
    else:
        return None
    if stem not in counted()[device] or run["model"] != "gpt2" or int(run["T"]) != SIZES[device]:
        return None
    return roofline_ms(work(int(run["B"]), device)[stem], rates)
