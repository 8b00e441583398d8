"""The rates that a calculation takes for a GPU: those that owners measured.

NVIDIA counts FP32 of a GeForce with units that no matmul fills: a 4090 reaches two thirds of its
data sheet. So the rates of matmuls are medians of what owners measured (gpu_rates.csv). Bandwidth
and memory are those of the data sheet.
"""

import csv
from functools import cache
from statistics import median

from ladder.cards import DATA_SHEETS, GPU
from ladder.checkout import ROOT

UNITS = ("fp32", "tf32", "half")
# The GPUs of which all rates are known, by name.
CARDS = {gpu.name: gpu for gpu in DATA_SHEETS.values() if gpu.bandwidth}


@cache
def measured_rates() -> dict[str, dict[str, tuple[int, float]]]:
    """gpu_rates.csv: by a card's name and the unit, how many machines and their median TFLOP/s."""
    text = ROOT.joinpath("ladder", "gpu_rates.csv").read_text("utf-8")
    cards = {}
    for row in csv.DictReader(text.splitlines()[1:]):
        card = cards.setdefault(row["name"], {})
        card[row["unit"]] = int(row["n"]), float(row["median"])
    return cards


def rates_of(gpu: GPU) -> dict[str, float]:
    """TFLOP/s by unit, and `bandwidth` in GB/s.

    What nobody measured takes the median share of their data sheets that measured cards of its
    generation reach; TF32 of a card whose bfloat16 was measured is half of that.
    """
    rates = owners_rates(gpu)
    for unit in ("fp32", "half"):
        if unit not in rates:
            rates[unit] = getattr(gpu, unit) * median(shares_of_sheets(gpu.generation, unit))
    if "tf32" not in rates:
        rates["tf32"] = tf32_rate(gpu, rates)
    return rates | {"bandwidth": gpu.bandwidth}


def owners_rates(gpu: GPU) -> dict[str, float]:
    """The medians of a card's owners, of the units that they measured."""
    return {unit: rate for unit, (_, rate) in measured_rates().get(gpu.name, {}).items()}


def tf32_rate(gpu: GPU, rates: dict[str, float]) -> float:
    """TF32's rate where no owner of this card measured it: FP32's where it has no such units."""
    if gpu.dtype == "float16" or not gpu.tf32:
        return rates["fp32"]
    shares = shares_of_sheets(gpu.generation, "tf32")
    if "half" in owners_rates(gpu) or not shares:
        return rates["half"] / 2
    return gpu.tf32 * median(shares)


def shares_of_sheets(generation: str, unit: str) -> list[float]:
    """The share of its data sheet that each measured card of a generation reaches."""
    shares = []
    for gpu in CARDS.values():
        found = owners_rates(gpu)
        if gpu.generation == generation and unit == "tf32" and "half" in found and gpu.tf32:
            found.setdefault("tf32", found["half"] / 2)
        if gpu.generation == generation and unit in found:
            shares.append(found[unit] / getattr(gpu, unit))
    return shares


def source_of(gpu: GPU) -> str:
    """Whose rates `rates_of` gives, in words."""
    card = measured_rates().get(gpu.name)
    if not card:
        return f"estimated from the {gpu.generation} cards that owners measured"
    owners = max(n for n, _ in card.values())
    said = "measured by its owner" if owners == 1 else f"measured by {owners} owners"
    if "fp32" not in card:
        said += f", fp32 estimated from {gpu.generation} cards"
    if gpu.dtype == "bfloat16" and gpu.tf32 and "tf32" not in card:
        said += ", tf32 as half of bfloat16"
    return said
