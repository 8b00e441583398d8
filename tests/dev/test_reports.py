"""reports.py: what is known of a card, and how far off calculated numbers are."""

import json

import pytest

from dev import reports


def test_a_reported_step_is_its_batches_and_one_optimizer():
    """On an A100 at B=32: TFLOP that a batch multiplies, GB between that, and of AdamW."""
    row = {"gpu": "A100 SXM 80GB", "rung": reports.TOP, "B": 32}
    row |= {"grad_accum_steps": 16, "tok_per_s": 203909.78}  # 2.57118 s a step
    by_hand = (16 * (26.459 / 264.53 + 61.306 / 2039) + 4.979 / 2039) / 2.57118
    assert reports.share_of(row) == pytest.approx(by_hand, 1e-4)


@pytest.fixture
def three(monkeypatch):
    """Three reports: two of one author, of which one is on the other's card."""
    rows = [
        {"who": "a", "gpu": "X", "share": 0.8},
        {"who": "a", "gpu": "Y", "share": 0.5},
        {"who": "b", "gpu": "X", "share": 1.0},
    ]
    monkeypatch.setattr(reports, "share_of", lambda row: row["share"])
    return rows


def test_a_report_is_predicted_from_those_of_other_authors_and_cards(three):
    """Authors: 0.8 / 1, 0.5 / 1, 1 / 0.65. Cards: 0.8 / 0.5, 0.5 / 0.9, 1 / 0.5."""
    text = " ".join(reports.tested("Runs", three).split())
    assert text.startswith("- **Runs** (3): four fifths reached 56 % to 96 % of the roofline.")
    authors, cards = text.split("Predicted from other ")[1:]
    assert "half are within 50 %, four fifths between 44 % below and 39 % above" in authors
    assert "the worst, +54 %, is the X." in authors
    assert "half are within 60 %, four fifths between 24 % below and 92 % above" in cards


def test_a_card_shows_its_own_reports_and_else_those_of_cards_like_it():
    known = json.loads(reports.known_json())
    assert known["RTX 4090"]["training"] == "106,000 to 130,000 (reported, 5 authors)"
    assert known["T4"]["training"].endswith(" (calculated, no report tests it)")
    assert known["RTX 3090"]["gain"] == "3.4 (reported, rung 07)"  # 1.5 1.5 1.3 1.1 1.06
    # 12.4 by the roofline, 0.79 to 0.89 of it on A100s
    assert known["H100 SXM"]["gain"] == "9.8 to 11 (calculated)"
