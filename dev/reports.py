"""What others reported of GPUs (docs/reported.csv), and how far off calculated numbers are.

A calculated number is the roofline's, times the share of it that others reached.
"""

import csv
import json
from functools import cache

import numpy as np

from ladder.cards import GPU
from ladder.checkout import ROOT
from ladder.cli import BLOCK_SIZE
from ladder.measure.rates import CARDS, measured_rates, rates_of
from ladder.measure.work import batch_to_compare, batch_to_train, roofline_ms, work
from ladder.show.reported import STEP_TOKENS
from ladder.show.words import span

TOP = "10_fused_adamw"


@cache
def reports() -> list[dict]:
    """reported.csv: a row per step that somebody reported."""
    text = (ROOT / "docs" / "reported.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()[1:], quoting=csv.QUOTE_NONNUMERIC))


@cache
def near_top() -> list[dict]:
    """Of the runs near rung 10 the fastest of each author and card, in order."""
    fastest = {}
    for row in sorted(reports(), key=lambda row: row["tok_per_s"], reverse=True):
        if row["kind"] == "near rung 10":
            fastest.setdefault((row["who"], row["gpu"]), row)
    return [*fastest.values()]


def roofline_rate(gpu: GPU, rung: str, B: float, batches: float = 1) -> float:
    """Tokens per second by the roofline, with an update after so many batches of B."""
    *batch, update = roofline_ms(work(int(B))[rung], rates_of(gpu))
    # Adding up the gradients is not counted: 3 % of a step at B=8, less above.
    return 1e3 * B * BLOCK_SIZE / (sum(batch) + update / batches)


def share_of(row: dict) -> float:
    """The share of the roofline that a report reached."""
    gpu = CARDS[row["gpu"]]
    return row["tok_per_s"] / roofline_rate(gpu, row["rung"], row["B"], row["grad_accum_steps"])


# ------------------------------------------------------------------ what is known of a card


def known_json() -> str:
    """ladder/show/known.json, which `ladder roofline` prints and the tables of cards show."""
    return json.dumps({name: known_of(gpu) for name, gpu in CARDS.items()}, indent=1) + "\n"


def known_of(gpu: GPU) -> dict:
    """What a card reached in its own reports, from the slowest to the fastest; without one what
    four fifths of such cards did: shares of the roofline, tokens per second of ddp_run.py."""
    own = [row for row in near_top() if row["gpu"] == gpu.name]
    rows = own or such(gpu.name in measured_rates())
    low, high = np.percentile([share_of(row) for row in rows], [0, 100] if own else [10, 90])
    B = batch_to_train(gpu)
    rate = roofline_rate(gpu, TOP, B, STEP_TOKENS / B / BLOCK_SIZE)
    if own:
        authors = f"{len(own)} author{'s' if len(own) > 1 else ''}"
        rates = [own[-1]["tok_per_s"], own[0]["tok_per_s"]]
        training = f"{span(rates, 3)} (reported, {authors})"
    else:
        rates = [low * rate, high * rate]
        training = f"{span(rates)} {calculated(gpu)}"
    return {
        "gain": gain(gpu),
        "training_gain": calculated_gain(gpu, rate),
        "training": training,
        # Rounded: the last digits differ from one NumPy to the next.
        "tok_per_s": [round(rate) for rate in rates],
        "shares": [round(low, 4), round(high, 4)],
    }


def such(measured: bool) -> list[dict]:
    """`near_top` with rung 10's vocabulary, of cards whose matmuls owners measured, or did not."""
    rows = [row for row in near_top() if row["vocabulary"] == 50304]
    return [row for row in rows if (row["gpu"] in measured_rates()) == measured]


def gain(gpu: GPU) -> str:
    """How many times as fast rung 10 is as the baseline: `3.4 (reported, rung 07)`. What is
    calculated is as far off as the ladders of cards like it: RTX, or of a data center."""
    if gpu.name in ladders():
        first, *_, last = ladders()[gpu.name]
        end = "" if last["rung"] == TOP else f", rung {last['rung'][:2]}"
        return f"{span([last['tok_per_s'] / first['tok_per_s']])} (reported{end})"
    return calculated_gain(gpu, roofline_rate(gpu, TOP, batch_to_compare(gpu)))


def calculated_gain(gpu: GPU, rate: float) -> str:
    """What this rate of rung 10, the roofline's, is over the baseline's."""
    errors = []
    for name, (first, *_, last) in ladders().items():
        if name.startswith("RTX") == gpu.name.startswith("RTX"):
            errors.append(share_of(last) / share_of(first))
    times = rate / roofline_rate(gpu, "baseline", batch_to_compare(gpu))
    return f"{span([times * min(errors), times * max(errors)])} {calculated(gpu)}"


def ladders() -> dict[str, list[dict]]:
    """By card: the rungs that one author timed on it, in order."""
    found = {}
    for row in reports():
        if row["kind"] == "ladder":
            found.setdefault(row["gpu"], []).append(row)
    return found


def calculated(gpu: GPU) -> str:
    """How a calculated number is known: no report has float16."""
    return "(calculated)" if gpu.dtype == "bfloat16" else "(calculated, no report tests it)"


# ------------------------------------------------------------------ how far off


def errors_text() -> str:
    """How well reports near rung 10 are predicted by those of other authors, and of other cards."""
    return f"""{tested("All reported runs near rung 10", near_top())}
{tested("Those with rung 10's vocabulary of 50304", such(True) + such(False))}
{tested("Of these, on cards whose matmuls an owner measured", such(True))}
{tested("Of these, on cards whose rates are estimated", such(False))}
"""


def tested(what: str, rows: list[dict]) -> str:
    """A point of a list: how far these reports are from the median of others."""
    low, high = np.percentile([share_of(row) for row in rows], [10, 90])
    text = (
        f"- **{what}** ({len(rows)}): four fifths reached {low:.0%} to {high:.0%} of the roofline."
    )
    for key, whose in (("who", "authors"), ("gpu", "cards")):
        errors = []
        for row in rows:
            others = [share_of(other) for other in rows if other[key] != row[key]]
            errors.append(share_of(row) / np.median(others) - 1)
        half = np.median(np.abs(errors))
        low, high = np.percentile(errors, [10, 90])
        worst = np.argmax(np.abs(errors))
        text += f"""
  Predicted from other {whose}, half are within {half:.0%}, four fifths between {-low:.0%} below and
  {high:.0%} above; the worst, {errors[worst]:+.0%}, is the {rows[worst]["gpu"]}."""
    return text.replace("%", " %").replace(" -", " −")
