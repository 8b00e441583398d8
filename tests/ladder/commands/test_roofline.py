"""`ladder roofline`."""

import re
import shlex

import pytest

from ladder.commands import roofline
from ladder.commands.main import main


def test_the_commands_of_its_docstring_work(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = re.findall(r"^ +ladder (roofline.*)", roofline.__doc__, re.MULTILINE)
    for command in [*commands, "roofline --gpu T4"]:
        assert main(shlex.split(re.split("  +", command)[0])) == 0, command
    said = capsys.readouterr().out
    # 16,384 tokens x (6 x 123.6M parameters + 12 x 12 x 768 x 1024)
    assert "00 baseline           14.00 fp32" in said
    assert "The roofline of RTX 4070 at B=2: 179 → 48 ms, 3.7 times (calculated" in said
    assert "report of a H100 SXM" in said and "the middle half of 20 reported GPUs" in said


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4070", "RTX 4070"),
        ("4070 ti", "RTX 4070 Ti"),
        ("rtx 4070 Super Ti", "RTX 4070 Ti SUPER"),
        ("A40", "A40"),  # not the RTX A4000
    ],
)
def test_a_card_is_found_by_the_words_of_its_name(text, name):
    assert roofline.find(text).name == name


@pytest.mark.parametrize(("gpu", "largest"), [("RTX 4090", 8), ("RTX 3060 Laptop", 0)])
def test_the_largest_batch_is_told(gpu, largest, capsys):
    assert main(["roofline", "--gpu", gpu]) == 0
    assert f"The largest B: {largest} for the baseline, " in capsys.readouterr().out
