"""Bad input to a command is told in one line, with status 2, before anything is written."""

import shlex

import pytest
from conftest import ROOT

from ladder.commands.main import main

CASES = [
    ("clmib", "error there is no command clmib: expected climb, diff"),
    ("diff 0", "error rung 0 changes nothing"),
    ("diff 99", "error no rung has a number 99"),
    (f"diff 3 {ROOT}/pyproject.toml", " is not valid Python (a merge marker left?)"),
    ("diff nothing.py 3", "nothing.py is neither a rung (its number or a part of its name) nor a"),
    ("diff adamw", "adamw may be 08_adamw_clipping or 10_fused_adamw: write more of it"),
    ("roofline --gpu A100", "A100 may be A100 SXM 80GB, A100 PCIe 80GB, A100 40GB: write more"),
    ("roofline --gpu nonsense", "nonsense is in no data sheet here: --help lists the names"),
    ("climb --resume runs", "error runs is not a climb's: it has no climb.json"),
    ("climb 0 --at-most abc", "--at-most: invalid float value: 'abc'"),
    ("climb 0 --batch-size 9999", "corpus tinyshakespeare has 338025 tokens, but"),
    ("batch 0 --max-batch 9999", "corpus tinyshakespeare has 338025 tokens, but"),
    ("climb 0 --out /", "error / is there already: choose another --out"),
    ("profile 4 4", "error give one rung, or two of different names"),
]


@pytest.mark.parametrize(("words", "said"), CASES, ids=[words[:40] for words, _ in CASES])
def test_a_mistake_is_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status = main(shlex.split(words))
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert not list(tmp_path.iterdir())
    (line,) = err.splitlines()
    assert line.startswith("error ") and said in line
