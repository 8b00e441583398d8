"""The rates that a calculation takes for a GPU: those that owners measured, or its data sheet's.

NVIDIA counts FP32 of a GeForce with units that no matmul fills: a 4090 reaches two thirds of its
data sheet. So the rates of matmuls are medians of what owners measured (gpu_rates.csv). Bandwidth
and memory are those of the data sheet.
"""

import csv
from functools import cache
from statistics import median

from ladder.files import ROOT
from ladder.machine import DATA_SHEETS, GPU

UNITS = ("fp32", "tf32", "half")


@cache
def measured() -> dict[str, dict[str, tuple[int, float]]]:
    """gpu_rates.csv: by a card's name and the unit, how many machines and their median TFLOP/s."""
    text = ROOT.joinpath("ladder", "gpu_rates.csv").read_text(encoding="utf-8")
    cards = {}
    for row in csv.DictReader(text.splitlines()[1:]):
        card = cards.setdefault(row["name"], {})
        card[row["unit"]] = int(row["n"]), float(row["median"])
    return cards


def rates_of(gpu: GPU, data_sheet: bool = False) -> dict[str, float]:
    """TFLOP/s by unit, and `bandwidth` in GB/s.

    A card that nobody measured takes its generation's median share of the data sheet.
    """
    if data_sheet:
        rates = {unit: getattr(gpu, unit) for unit in UNITS}
    else:
        rates = owners_rates(gpu) or rates_by_generation(gpu)
    return rates | {"bandwidth": gpu.bandwidth}


def owners_rates(gpu: GPU) -> dict[str, float]:
    """The medians of a card's owners; without one of TF32, half of bfloat16's. Empty: no owner."""
    rates = {unit: rate for unit, (_, rate) in measured().get(gpu.name, {}).items()}
    if rates and "tf32" not in rates:
        has_tf32 = gpu.dtype == "bfloat16"
        rates["tf32"] = rates["half"] / 2 if has_tf32 else rates["fp32"]
    return rates


def rates_by_generation(gpu: GPU) -> dict[str, float]:
    """A card's data sheet times the median share of theirs that measured cards like it reach."""
    relatives = {}
    for other in DATA_SHEETS.values():
        if other.generation == gpu.generation and other.name in measured():
            relatives[other.name] = other
    rates = {}
    for unit in UNITS:
        shares = [owners_rates(gpu)[unit] / getattr(gpu, unit) for gpu in relatives.values()]
        rates[unit] = getattr(gpu, unit) * median(shares)
    return rates


def source_of(gpu: GPU, data_sheet: bool = False) -> str:
    """Whose rates `rates_of` gives, in words."""
    if data_sheet:
        return "by the data sheet"
    card = measured().get(gpu.name)
    if not card:
        return f"estimated from the {gpu.generation} cards that owners measured"
    owners = max(n for n, _ in card.values())
    said = "measured by its owner" if owners == 1 else f"measured by {owners} owners"
    if gpu.dtype == "bfloat16" and "tf32" not in card:
        said += ", tf32 as half of bfloat16"
    return said
