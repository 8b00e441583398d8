"""`ladder roofline`."""

import re
import shlex

from ladder.commands import roofline
from ladder.commands.main import main
from ladder.measure.rates import CARDS
from ladder.show.reported import known
from ladder.show.words import gain_text


def test_the_commands_of_its_docstring_work(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = re.findall(r"^ +ladder (roofline.*)", roofline.__doc__, re.MULTILINE)
    for command in [*commands, "roofline --gpu T4"]:
        assert main(shlex.split(re.split("  +", command)[0])) == 0, command
    said = capsys.readouterr().out
    # 16,384 tokens x (6 x 123.6M parameters + 12 x 12 x 768 x 1024)
    assert "00 baseline           14.00 fp32" in said
    assert "The roofline of RTX 4070 at B=2: 179 → 48 ms, calculated" in said
    assert f"training with ddp_run.py, tok/s: {known()['H100 SXM']['training']}" in said
    assert "In 6 hours, with validation: --steps 2,490\n" in said  # 21,600 s x 0.97 / 8.4 s


def test_a_card_is_found_by_the_words_of_its_name():
    for name in CARDS:
        assert roofline.find(name).name == name
    assert roofline.find("rtx4070").name == "RTX 4070"
    assert roofline.find("4070 ti").name == "RTX 4070 Ti"
    assert roofline.find("A40").name == "A40"  # not the RTX A4000


def test_a_gain_is_in_times_from_2_up_and_in_per_cent_below():
    gains = [gain_text(before, 10) for before in (37, 20, 19.9, 10.04, 10.004, 9.8)]
    assert gains == ["3.7 times", "2.0 times", "+99 %", "+0.4 %", "no change", "−2 %"]
