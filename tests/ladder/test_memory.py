"""memory.py: the batch that fits a GPU."""

import pytest
import torch

from ladder import machine, memory
from ladder.cli import MODELS, parse_args
from ladder.memory import baseline_batch


def test_the_largest_batch_that_fits_by_hand():
    """12 layers x 98,304 + 7,680 + 804,112 bytes a token, and 12 for each of the parameters."""
    needed = 8 * 1024 * 1_991_440 + 12 * 163_037_184
    memory = needed * 9 / 8 + 2e9
    assert baseline_batch(memory + 1e3, MODELS["gpt2"], 1024) == 8
    assert baseline_batch(memory - 1e3, MODELS["gpt2"], 1024) == 4


@pytest.mark.parametrize(
    ("answer", "B"), [("900 MiB", 8), ("9000 MiB", 4), ("24000 MiB", 1), ("[N/A]", 8)]
)
def test_the_default_batch_leaves_other_programs_what_they_hold(
    answer, B, card, monkeypatch, capsys
):
    """Of an RTX 4090, which has 25.3 GB; 9000 MiB are 9.4 GB."""
    monkeypatch.setattr(machine, "first_line", lambda *words: answer)
    card("RTX 4090")
    assert parse_args("doc", []).batch_size == B
    said = capsys.readouterr().err
    assert ("note  other programs hold" in said) == (B < 8)
    assert ("hold 9.4 of this GPU's 25.3 GB" in said) == (B == 4)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2.6e10)  # our own, as in doctor
    assert parse_args("doc", []).batch_size == 8
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert memory.memory_of(card("RTX 4090")) == 25.3e9  # ranks have to agree
