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

    A card that nobody measured takes the median share of their data sheets that measured cards of
    its generation reach.
    """
    rates = owners_rates(gpu)
    if not rates:
        for unit in UNITS:
            rates[unit] = getattr(gpu, unit) * median(shares_of_sheets(gpu.generation, unit))
    return rates | {"bandwidth": gpu.bandwidth}


def owners_rates(gpu: GPU) -> dict[str, float]:
    """The medians of a card's owners; without one of TF32, half of bfloat16's. Empty: no owner."""
    rates = {}
    for unit, (_, rate) in measured_rates().get(gpu.name, {}).items():
        rates[unit] = rate
    if rates and "tf32" not in rates:
        has_tf32 = gpu.dtype == "bfloat16"
        rates["tf32"] = rates["half"] / 2 if has_tf32 else rates["fp32"]
    return rates


def shares_of_sheets(generation: str, unit: str) -> list[float]:
    """The share of its data sheet that each measured card of a generation reaches."""
    shares = []
    for gpu in CARDS.values():
        if gpu.generation == generation and gpu.name in measured_rates():
            shares.append(owners_rates(gpu)[unit] / getattr(gpu, unit))
    return shares


def source_of(gpu: GPU) -> str:
    """Whose rates `rates_of` gives, in words."""
    card = measured_rates().get(gpu.name)
    if not card:
        return f"estimated from the {gpu.generation} cards that owners measured"
    owners = max(n for n, _ in card.values())
    said = "measured by its owner" if owners == 1 else f"measured by {owners} owners"
    if gpu.dtype == "bfloat16" and "tf32" not in card:
        said += ", tf32 as half of bfloat16"
    return said
