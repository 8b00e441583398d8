"""`ladder roofline`."""

import re
import shlex

from ladder.commands import roofline
from ladder.commands.main import main
from ladder.show.reported import known


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
