"""`ladder roofline`."""

import re
import shlex

import pytest

from ladder.commands import roofline
from ladder.commands.main import main
from ladder.commands.roofline import find
from ladder.measure.fits import largest_batch
from ladder.measure.rates import CARDS
from ladder.show.reported import gains_text, known, rung_gains


def test_the_commands_of_its_docstring_work(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = re.findall(r"^ +ladder (roofline.*)", roofline.__doc__, re.MULTILINE)
    for command in [*commands, "roofline --gpu T4"]:
        assert main(shlex.split(re.split("  +", command)[0])) == 0, command
    said = capsys.readouterr().out
    # 16,384 tokens x (6 x 123.6M parameters + 12 x 12 x 768 x 1024)
    assert "00 baseline           14.00 fp32" in said
    assert f"training with train.py, tok/s: {known()['H100 SXM']['tok_per_s'][0]:,.0f} to" in said
    assert "A100 PCIe 80GB" in said  # a line for each variant
    assert "In 6 hours, with validation: --steps 2,490\n" in said  # 21,600 s x 0.97 / 8.4 s


def test_what_others_reported_on_a_card_and_of_such_chips_is_printed(capsys):
    assert main(["roofline", "--gpu", "a100 sxm"]) == 0
    said = capsys.readouterr().out
    assert "03 bf16 autocast: 54,613 tok/s, 300 ms of B=16, Andrej Karpathy" in said
    median, ends = gains_text(rung_gains("data-center")["05_torch_compile"])
    assert re.search(rf"05 torch.compile .* {re.escape(median)} +{re.escape(ends)}", said)


def test_gains_in_words():
    assert gains_text([]) == ("", "")
    assert gains_text([1.1]) == ("+10 %", "(1)")
    assert gains_text([1.1, 1.2, 1.5]) == ("+20 %", "+10 to +50 % (3)")
    assert gains_text([1.5, 2.0, 3.0]) == ("2.0 times", "+50 % to 3.0 times (3)")


def test_a_batch_that_does_not_fit_is_said(capsys):
    assert main(["roofline", "--gpu", "4070", "--batch-size", "4096"]) == 0
    said = capsys.readouterr().out
    fits = largest_batch(CARDS["RTX 4070"])
    assert f"B=4096 does not fit: the baseline has room for {fits}, train.py for 8" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("GTX 4070", "did you mean RTX 4070"),
        ("GH200", "its bandwidth is in no data sheet here"),
        ("banana", "--help lists the names"),
    ],
)
def test_a_card_that_is_not_there(name, says, capsys):
    assert main(["roofline", "--gpu", name]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "RTX 4070 Laptop"),
        ("RTX 4070 Laptop GPU", "RTX 4070 Laptop"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("Tesla T4", "T4"),
        ("rtx-4070", "RTX 4070"),
    ],
)
def test_a_card_by_the_name_that_its_driver_gives(name, card):
    assert find(name) == [CARDS[card]]
