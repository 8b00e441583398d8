"""The counted work of a training step, and an estimate of its time: the roofline.

work.json has the FLOPs and bytes of each script's step for GPT-2 124M: dev/count_work.py counts
them, docs/measuring.md has the method.
"""

import json
from functools import cache
from pathlib import Path

from ladder.cards import GPU, find_gpu
from ladder.cli import BLOCK_SIZE, MODELS
from ladder.measure.folder import Climb
from ladder.measure.rates import rates_of
from ladder.memory import baseline_batch, default_batch, memory_on_sale, train_batch

WORK = Path(__file__).with_name("work.json")
PARTS = ("linear", "attention", "other", "optimizer")
# Not calculated: the compiler may pad the matmul by itself that this rung pads.
AS_BEFORE = "07_vocab_50304"
# The T behind the counts. A CPU's steps are counted with its own autocast and kernels.
SIZES = {"cuda": 1024, "cpu": 256}


@cache
def counted() -> dict[str, dict]:
    """work.json: of each kind of device and rung, a constant and a slope in B for each quantity."""
    return json.loads(WORK.read_text("utf-8"))


def work(B: int, device: str = "cuda") -> dict[str, dict]:
    """The work of a step of each rung, by stem: FLOPs, bytes and kernels, and the matmuls' unit."""
    steps = {}
    for stem, counts in counted()[device].items():
        step = {"unit": counts["unit"]}
        for key in counts.keys() - {"unit", "code"}:
            constant, slope = counts[key]
            step[key] = constant + B * slope
        steps[stem] = step
    return steps


def largest_batch(gpu: GPU) -> int:
    """The largest B at which the baseline fits a card, or 0."""
    return baseline_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)


def batch_to_compare(gpu: GPU) -> int:
    """The scripts' default B on a card, at most 16."""
    return default_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)


def batch_to_train(gpu: GPU) -> int:
    """The default B of train.py on a card."""
    return train_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)


def roofline_ms(step: dict, rates: dict[str, float]) -> list[float]:
    """Milliseconds of each of PARTS.

    `step` is one of `work`; `rates` are in TFLOP/s by unit, and `bandwidth` in GB/s.
    """
    rate = rates[step["unit"]]
    parts = []
    for part in PARTS:
        ms = step[f"{part}_bytes"] / rates["bandwidth"] / 1e6
        if part in ("linear", "attention"):
            ms = max(ms, step[f"{part}_flops"] / rate / 1e9)
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
    steps = work(run["B"], device)
    if stem not in steps or run["model"] != "gpt2" or run["T"] != SIZES[device]:
        return None
    return roofline_ms(steps[stem], rates)
