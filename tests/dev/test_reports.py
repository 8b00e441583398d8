"""reports.py: what is known of a card, and how far off calculated numbers are."""

import json
import math

import pytest

from dev import reports
from ladder.checkout import ROOT
from ladder.measure.fits import batch_to_compare, batch_to_train
from ladder.measure.rates import CARDS, rates_of
from ladder.measure.work import roofline_ms, work

KNOWN = json.loads((ROOT / "ladder" / "show" / "known.json").read_text("utf-8"))


def test_a_reported_step_is_its_batches_and_one_optimizer():
    """On an A100 at B=32: TFLOP that a batch multiplies, GB between that, and of AdamW."""
    row = {"gpu": "A100 SXM 80GB", "rung": reports.TOP, "B": 32, "T": 1024}
    row |= {"grad_accum_steps": 16, "tok_per_s": 203909.78}  # 2.57118 s a step
    step = work(32)[reports.TOP]
    linear, attention, other, optimizer = roofline_ms(step, rates_of(CARDS[row["gpu"]]))
    by_hand = (16 * (linear + attention + other) + optimizer) / 2571.18
    assert reports.share_of(row) == pytest.approx(by_hand, 1e-4)


def test_percentiles_of_authors():
    """Nine authors at 1 to 9: the tenth percentile of nine and one more is the first. An author of
    two cards has half a vote for each."""
    nine = [(f"{k}", float(k)) for k in range(1, 10)]
    assert reports.range_of(nine) == (1, 5, 9)
    twice = [("a", 1.0), ("a", 3.0), ("b", 2.0)]
    assert reports.range_of(twice).middle == pytest.approx(2)


def test_a_range_holds_the_reports_of_its_card():
    for row in reports.near_top():
        low, high = KNOWN["cards"][row["gpu"]]["tok_per_s"]
        assert low <= row["tok_per_s"] <= high, row
    found = {"low": 0.5, "high": 123.4}
    ends = reports.outwards(reports.Range(found["low"], 1, found["high"]))
    assert ends == [0.5, 130.0]


def test_four_fifths_of_reports_lie_in_the_range_that_others_make():
    tried = reports.held_out()
    assert sum(inside for _, inside in tried) >= 0.8 * len(tried) > 30


def test_columns_of_a_card_do_not_contradict_each_other():
    """Tokens per second over the baseline's lie in the gain, both at the B that is compared; the
    ends within their two digits. Its own ladders lie in it, too."""
    for name, gpu in CARDS.items():
        card = KNOWN["cards"][name]
        low, high = card["gain"]
        B = batch_to_compare(gpu)
        top = reports.roofline_rate(gpu, reports.TOP, B)
        slowest, middle, fastest = (
            rate / reports.training_rate(gpu) * top / card["baseline"]
            for rate in (card["tok_per_s"][0], card["middle"], card["tok_per_s"][1])
        )
        assert 0.9 * low < slowest and low < middle < high and fastest < 1.1 * high, name
        for own in reports.own_gains(gpu):
            assert low <= own <= high, name
        assert card["tok_per_s"][0] < card["middle"] < card["tok_per_s"][1], name


def test_rows_of_the_table_are_what_its_first_line_says():
    for row in reports.reports():
        assert row["source"].startswith("https://"), row
        gpu = CARDS.get(row["gpu"])
        if gpu:
            assert reports.chip_of(gpu) == row["chip"], row
        if row["kind"] == "near rung 10" and not math.isnan(row["B"]):
            assert row["rung"] >= "07" and row["B"] >= batch_to_train(gpu) / 4, row
