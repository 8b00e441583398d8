"""What cards are: the rates and memory of GPUs, from their data sheets."""

import csv
import re
from pathlib import Path
from typing import NamedTuple


class GPU(NamedTuple):
    """Dense rates in TFLOP/s with FP32 accumulation, bandwidth in GB/s, memory in GB.

    Dense is half of a figure "with sparsity". None: not looked up.
    """

    name: str  # for people; several names of a driver may share it
    generation: str  # cards whose matmuls reach like shares of their data sheets
    source: str
    note: str
    dtype: str  # what `half` multiplies: bfloat16, or float16 where that is all it has
    half: float
    fp32: float | None
    tf32: float | None  # none, or FP32's rate: it has no TF32 units, and 02 changes nothing
    bandwidth: float | None
    memory: float | None


def read_data_sheets() -> dict[str, GPU]:
    """The rows of gpus.csv by the beginning, in whole words, of the name that the driver gives.

    Where the column `source` begins with "calculated", no half-precision figure of NVIDIA's was
    found. Then `half` is multiprocessors x FLOP a clock x boost clock, with 512 FLOP on a GeForce
    and 1024 on an RTX card. Where NVIDIA gives a figure, it is the same: 82 x 512 x 1.695 GHz = 71
    TFLOP/s for an RTX 3090, 84 x 1024 x 1.8 GHz = 154.8 for an RTX A6000, 68 x 512 x 1.545 GHz =
    53.8 for an RTX 2080 Ti. FP32 is half of it on a GeForce, a quarter on an RTX 20. A laptop has
    the highest clock of its range: with less power it is slower.
    """
    sheets = {}
    with Path(__file__).with_name("gpus.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            driver = row.pop("driver")
            for column in ("half", "fp32", "tf32", "bandwidth", "memory"):
                row[column] = float(row[column]) if row[column] else None
            sheets[driver] = GPU(**row)
    return sheets


DATA_SHEETS = read_data_sheets()
# After a name these mean another chip, a part of one (MIG, or the gigabytes of a virtual GPU, as in
# "NVIDIA A10-4Q"), or leave the chip open (MI250).
OTHER_CHIP = re.compile(r"\b(Ti|D|SUPER|Super|Laptop|Max|NVL|MIG|MI250|\d+(A|B|C|Q|CME))\b")


def find_gpu(name: str | None) -> GPU | None:
    """The row of a GPU by the name that its driver gives, such as `NVIDIA A100-SXM4-80GB`."""
    name = re.sub(r"[\s-]+", " ", name or "") + " "
    known = [driver for driver in DATA_SHEETS if name.startswith(f"{driver} ")]
    driver = max(known, key=len, default="")
    # What follows may be memory or form factor ("H200 141GB"), but not another chip.
    if OTHER_CHIP.search(name.removeprefix(driver)):
        return None
    return DATA_SHEETS.get(driver)
