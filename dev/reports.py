"""What others reported of GPUs (docs/reported.csv), and the ranges that follow from it.

Tokens per second are the roofline's, times the shares of it that authors reached. Each author has
one vote.
"""

import csv
import json
import math
from functools import cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from ladder.cards import GPU
from ladder.checkout import ROOT
from ladder.cli import BLOCK_SIZE
from ladder.measure.fits import batch_to_compare, batch_to_train
from ladder.measure.rates import CARDS, measured_rates, rates_of
from ladder.measure.scripts import rungs
from ladder.measure.work import roofline_ms, work
from ladder.show.reported import STEP_TOKENS

TOP = "10_fused_adamw"
# Chips by how much faster they multiply in half precision than in FP32: A100 and H100 13 to 15
# times, RTX cards, A10G, L4 and AMD's 3 to 6. Those without bfloat16 are apart.
CHIPS = ("data-center", "RTX", "float16")
DATA_CENTER = 8
MULTIPLES = 100  # a smaller tok_per_s is a multiple of its ladder's first row


class Range(NamedTuple):
    """Where four fifths of the authors are, and the middle."""

    low: float
    middle: float
    high: float

    def times(self, value: float) -> "Range":
        """Each of the three times a value."""
        return Range(self.low * value, self.middle * value, self.high * value)

    def with_all(self, values: list[float]) -> "Range":
        """Wide enough to hold these values."""
        return Range(min([self.low, *values]), self.middle, max([self.high, *values]))


@cache
def reports() -> list[dict]:
    """reported.csv: a row per step that somebody reported."""
    text = (ROOT / "docs" / "reported.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()[1:], quoting=csv.QUOTE_NONNUMERIC))


@cache
def near_top() -> list[dict]:
    """The runs near rung 10, one of each author and card, at the largest B; the fastest first."""
    found = {}
    for row in reports():
        if row["kind"] == "near rung 10":
            other = found.setdefault((row["who"], row["gpu"]), row)
            if row["B"] > other["B"]:
                found[row["who"], row["gpu"]] = row
    return sorted(found.values(), key=lambda row: row["tok_per_s"], reverse=True)


@cache
def ladders() -> dict[tuple[str, str], list[dict]]:
    """By author and card, the rungs that were timed, in the order in which they were added."""
    found = {}
    for row in reports():
        if row["kind"] == "ladder":
            found.setdefault((row["who"], row["gpu"]), []).append(row)
    return found


def chip_of(gpu: GPU) -> str:
    """Which of CHIPS a card is."""
    if gpu.dtype == "float16":
        return "float16"
    rates = rates_of(gpu)
    return "data-center" if rates["half"] > DATA_CENTER * rates["fp32"] else "RTX"


# ------------------------------------------------------------------ shares of the roofline


def roofline_rate(
    gpu: GPU, rung: str, B: float, batches: float = 1, T: float = BLOCK_SIZE
) -> float:
    """Tokens per second by the roofline, with an update after so many batches of B.

    A shorter T is taken as as many tokens of 1,024.
    """
    *batch, update = roofline_ms(work(B * T / BLOCK_SIZE)[rung], rates_of(gpu))
    # Adding up the gradients is not counted: 3 % of a step at B=8, less above.
    return 1e3 * B * T / (sum(batch) + update / batches)


def training_rate(gpu: GPU) -> float:
    """Tokens per second of train.py by the roofline."""
    B = batch_to_train(gpu)
    return roofline_rate(gpu, TOP, B, STEP_TOKENS / B / BLOCK_SIZE)


def share_of(row: dict) -> float:
    """The share of the roofline that a report reached; one without a B, of train.py's."""
    gpu = CARDS[row["gpu"]]
    if math.isnan(row["B"]):
        return row["tok_per_s"] / training_rate(gpu)
    rate = roofline_rate(gpu, row["rung"], row["B"], row["grad_accum_steps"], row["T"])
    return row["tok_per_s"] / rate


def range_of(values: list[tuple[str, float]]) -> Range:
    """The tenth, fiftieth and ninetieth percentile of values by author.

    Each author has one vote, which his values share. The percentiles are those of n votes and one
    more, so that the next author is as likely to lie in the range as the percentiles say.
    """
    authors = [who for who, _ in values]
    pairs = sorted((value, 1 / authors.count(who)) for who, value in values)
    found, weights = np.array(pairs).T
    places = (np.cumsum(weights) - weights / 2 + 0.5) / (len(set(authors)) + 1)
    return Range(*np.interp([0.1, 0.5, 0.9], places, found))


def shares(rows: list[dict], dtype: str) -> Range:
    """The shares of the roofline that runs near rung 10 reach with a dtype.

    Few reports have float16: their median, and around it the range of the others.
    """
    found = {"bfloat16": [], "float16": []}
    for row in rows:
        found[CARDS[row["gpu"]].dtype].append((row["who"], share_of(row)))
    reached = range_of(found["bfloat16"])
    if dtype == "float16":
        return reached.times(range_of(found["float16"]).middle / reached.middle)
    return reached


def baseline_share(chip: str) -> float:
    """The share of the roofline that FP32 reached on such chips: the median of the ladders."""
    found = []
    for (who, _), ladder in ladders().items():
        first = ladder[0]
        fp32 = first["rung"] in ("baseline", "01_weight_tying") and is_near(first)
        if fp32 and first["chip"] == chip and first["tok_per_s"] > MULTIPLES:
            found.append((who, share_of(first)))
    return range_of(found).middle


def is_near(row: dict) -> bool:
    """Whether a step is one of B and T that are compared here, or of a quarter of B, or half of T:
    in a smaller one launches take the time."""
    card = CARDS.get(row["gpu"])
    return bool(card) and row["B"] >= batch_to_compare(card) / 4 and row["T"] >= BLOCK_SIZE / 2


# ------------------------------------------------------------------ what is known of a card


def training_range(gpu: GPU, rows: list[dict]) -> Range:
    """Tokens per second of train.py on a card, by these reports; its own are in the range."""
    own = [row["tok_per_s"] for row in rows if row["gpu"] == gpu.name]
    return shares(rows, gpu.dtype).times(training_rate(gpu)).with_all(own)


def baseline_rate(gpu: GPU) -> float:
    """Tokens per second of the baseline at the B that is compared."""
    rate = roofline_rate(gpu, "baseline", batch_to_compare(gpu))
    return rate * baseline_share(chip_of(gpu))


def gain_range(gpu: GPU) -> Range:
    """How many times as fast rung 10 is as the baseline at one B.

    Rung 10 reaches there the shares that train.py reaches, the baseline those of such chips. The
    range holds the card's own ladders.
    """
    top = roofline_rate(gpu, TOP, batch_to_compare(gpu))
    factor = top / training_rate(gpu) / baseline_rate(gpu)
    return training_range(gpu, near_top()).times(factor).with_all(own_gains(gpu))


def own_gains(gpu: GPU) -> list[float]:
    """What the ladders of a card that go from FP32 to rung 07 or on gained as a whole."""
    gains = []
    for (_, card), ladder in ladders().items():
        first, last = ladder[0], ladder[-1]
        reached = max(row["rung"] for row in ladder if row["rung"] != "baseline")
        whole = first["rung"] in ("baseline", "01_weight_tying") and reached >= "07"
        if card == gpu.name and whole and is_near(first):
            gains.append(last["tok_per_s"] / first["tok_per_s"])
    return gains


def known_json() -> str:
    """ladder/show/known.json, which `ladder roofline` prints and the tables of cards show."""
    found = {"cards": {}, "rungs": {}}
    for name, gpu in CARDS.items():
        found["cards"][name] = known_of(gpu)
    for chip in CHIPS:
        found["rungs"][chip] = {}
        for stem, gains in rung_gains(chip).items():
            numbers = [round(gain, 5) for gain in sorted(gains.values())]
            found["rungs"][chip][stem] = numbers
    return json.dumps(found, indent=1) + "\n"


def known_of(gpu: GPU) -> dict:
    """What is known of one card: see ladder.show.reported."""
    rates = training_range(gpu, near_top())
    gain = gain_range(gpu)
    return {
        "chip": chip_of(gpu),
        "gain": outwards(gain),
        "baseline": round(baseline_rate(gpu), -1),
        "tok_per_s": outwards(rates),
        "middle": float(f"{rates.middle:.2g}"),
        "reports": reports_of(gpu),
    }


def outwards(found: Range) -> list[float]:
    """The ends with two digits, the low one rounded down, the high one up: they hold what the range
    held, whatever the last digits of another NumPy are."""
    ends = []
    for value, away in ((found.low, math.floor), (found.high, math.ceil)):
        digit = 10.0 ** (math.floor(math.log10(value)) - 1)
        ends.append(round(away(round(value / digit, 6)) * digit, 2))
    return ends


def reports_of(gpu: GPU) -> list[dict]:
    """The reported steps of a card at T=1024, near rung 10 and in ladders, by rung."""
    rows = []
    for row in [*near_top(), *chain(*ladders().values())]:
        here = row["gpu"] == gpu.name and row["order"] != "flash first"
        if here and row["T"] == BLOCK_SIZE and row["B"] > 0:
            rows.append(row)
    found = {}
    for row in sorted(rows, key=lambda row: (row["rung"] != "baseline", row["rung"])):
        if row["tok_per_s"] > MULTIPLES:
            shown = {name: row[name] for name in ("rung", "who", "B", "tok_per_s")}
            found.setdefault((row["rung"], row["who"], row["B"]), shown)
    return [*found.values()]


# ------------------------------------------------------------------ gains of the rungs


def rung_gains(chip: str, order: str = "as here") -> dict[str, dict[str, float]]:
    """By rung and author, how many times as fast it is as the rung timed before it, on such chips.

    Where an author timed two cards it is the median.
    """
    found = {path.stem: {} for path in rungs()}
    for (who, _), ladder in ladders().items():
        if ladder[0]["chip"] == chip and ladder[0]["order"] == order:
            for stem, gain in gains_of(ladder).items():
                found[stem].setdefault(who, []).append(gain)
    for stem, gains in found.items():
        found[stem] = {who: float(np.median(values)) for who, values in gains.items()}
    return found


def gains_of(ladder: list[dict]) -> dict[str, float]:
    """By rung, how many times as fast one ladder is with it as with the one timed before."""
    found = {}
    for before, row in pairwise(ladder):
        found[row["rung"]] = row["tok_per_s"] / before["tok_per_s"]
    return found


# ------------------------------------------------------------------ how far off


def held_out() -> list[tuple[dict, bool]]:
    """Each run near rung 10, and whether it is in its card's range as those of others make it."""
    found = []
    for row in near_top():
        others = [other for other in near_top() if other["who"] != row["who"]]
        low, high = outwards(training_range(CARDS[row["gpu"]], others))
        found.append((row, low <= row["tok_per_s"] <= high))
    return found


def ranges_text() -> str:
    """The shares of the roofline, and how many reports lie in the range that others make."""
    rows = near_top()
    authors = len({row["who"] for row in rows})
    low, middle, high = (f"{share:.0%}" for share in shares(rows, "bfloat16"))
    low16, middle16, high16 = (f"{share:.0%}" for share in shares(rows, "float16"))
    half = [f"{baseline_share(chip):.0%} on {chip} cards" for chip in CHIPS]
    tried = held_out()
    inside = sum(is_inside for _, is_inside in tried)
    out = [row for row, is_inside in tried if not is_inside]
    estimated = sum(row["gpu"] not in measured_rates() for row in out)
    text = f"""- **tok/s**: {len(rows)} runs by {authors} authors reach {low} to {high} of the
  roofline, middle {middle}; with float16 {low16} to {high16}, middle {middle16}.
- **Gains**: the baseline reaches {", ".join(half)}
  (medians of [ladders](reported.md#ladders)).
- **Of the {len(rows)} runs** {inside} ({inside / len(rows):.0%}) lie in the range that all other
  authors make for their card. Of the other {len(out)}, {estimated} are of cards with estimated
  rates.
"""
    return text.replace("%", " %")
