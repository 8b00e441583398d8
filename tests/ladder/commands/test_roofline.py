"""`ladder roofline`."""

import re
import shlex

import pytest

from ladder.commands import roofline
from ladder.commands.main import main


def test_the_commands_of_its_docstring_work(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = re.findall(r"^ +ladder (roofline.*)", roofline.__doc__, re.MULTILINE)
    for command in [*commands, "roofline --gpu T4", "roofline --gpu 'A100 SXM'"]:
        assert main(shlex.split(re.split("  +", command)[0])) == 0, command
    said = capsys.readouterr().out
    # 16,384 tokens x (6 x 123.6M parameters + 12 x 12 x 768 x 1024)
    assert "00 baseline           14.00 fp32" in said
    # Reported at the nearest B and at the same B.
    for words in ("B=32, 203,910 tok/s", "B=64, 466,440 tok/s", "No report of this GPU"):
        assert words in said


def test_a_card_comes_with_the_largest_b_that_fits(capsys):
    for name, B in {"RTX 4070": 2, "RTX 3060 Laptop": 1}.items():
        assert main(["roofline", "--gpu", name]) == 0
        said = capsys.readouterr().out
        assert f"The roofline of {name} at B={B}: calculated" in said
        assert ("too little" in said) == (B == 1)


def test_the_data_sheet_is_one_flag_away(capsys):
    assert main(["roofline", "--gpu", "RTX 4070", "--data-sheet"]) == 0
    said = capsys.readouterr().out
    assert "fp32 29.1, tf32 29.1, bfloat16 58.3" in said and "(TFLOP/s by the data sheet" in said
    # What others reached is a smaller share of it.
    assert main(["roofline", "--gpu", "RTX 4070"]) == 0
    shares = [re.search(r"at (\d+)–", text)[1] for text in (said, capsys.readouterr().out)]
    assert int(shares[0]) < int(shares[1])


def test_a_card_is_found_where_a_space_is_missing():
    assert roofline.find("rtx4070TiSuper").name == "RTX 4070 Ti SUPER"


@pytest.mark.parametrize(("gpu", "largest"), [("RTX 4090", 8), ("A100 40GB", 16)])
def test_a_batch_that_does_not_fit_is_told(gpu, largest, capsys):
    note = f"the largest power of two that fits the baseline is B={largest}\n"
    for B, told in ((largest, False), (2 * largest, True)):
        assert main(["roofline", "--gpu", gpu, "--batch-size", str(B)]) == 0
        assert (note in capsys.readouterr().out) == told
