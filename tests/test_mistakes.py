"""Bad input to a command is told in one line, with status 2, before anything is written."""

import shlex

import pytest
from conftest import ROOT

from ladder.commands import main

ON_CPU = "--device cpu --model tiny"
CASES = [
    ("diff 0", "error rung 0 changes nothing"),
    ("diff baseline", "error rung 0 changes nothing"),
    ("diff 99", "error there is no rung 99"),
    ("diff 3-5", "error 3-5 is several rungs"),
    ("diff 1 2 3", "error expected one or two rungs, got 3"),
    (f"diff {ROOT}/ladder/cli.py", "/ladder/cli.py is not a rung of this ladder"),
    (f"diff 3 {ROOT}/pyproject.toml", " is not valid Python: fix that first"),
    ("diff nothing.py 3", "nothing.py is neither a rung (its number or a part of its name) nor a"),
    ("diff adamw", "adamw may be 08_adamw_clipping or 10_fused_adamw: write more of it"),
    (f"diff 3 {'9' * 5_000}", "File name too long"),
    ("doctor --device cuda:99", "error --device cuda:99"),
    ("limits --gpu A100", "fits A100 SXM 80GB, A100 PCIe 80GB, A100 40GB: name one of"),
    ("limits --gpu Voodoo", "is not in the table"),
    ("limits --batch-size 0", "expected at least 1"),
    (f"limits --batch-size {'9' * 400}", "expected at least 1 and below 2**63, got 999"),
    ("limits --gpu T4 --bandwidth -1", "--bandwidth: expected a number above 0, got -1"),
    ("limits --gpu T4 --fp32 inf", "--fp32: expected a number above 0, got inf"),
    ("limits --fp32 20", "these rates are missing: --tf32, --bf16, --bandwidth"),
    ("limits --picture ''", "error --picture : it is drawn as a PNG: end the name with .png"),
    ("limits --picture work.svg", "error --picture work.svg: it is drawn as a PNG"),
    ("profile 1 2 3", "error give one rung, or two of different names"),
    ("profile 4 4", "error give one rung, or two of different names"),
    ("profile 4 --steps 2", "error --steps 2: a median needs at least 3"),
    ("roofline --seq-len 1025", "error --seq-len 1025 is longer than GPT-2's 1024 positions"),
    ("roofline --device tpu", "error --device tpu: expected cpu, cuda, cuda:N, xpu or mps"),
    (f"roofline {ON_CPU} --out .", "error cannot make the folder .: File exists"),
    ("roofline --seconds 0", "expected a number above 0, got 0"),
    ("roofline --seconds nan", "expected a number above 0, got nan"),
    ("timeit --steps 1", "error --steps 1: a standard deviation needs at least 2"),
    (f"fit 0 {ON_CPU} --memory 1e10", "error --memory 1e+10 is more GiB than any machine has"),
    (f"fit 0 {ON_CPU}", "error on a CPU say how much memory there is to fill: --memory GIB"),
    (f"fit 0 {ON_CPU} --memory 0.05", "error --memory 0.05 is not enough to import PyTorch"),
    (f"fit 0 {ON_CPU} --memory 4 --seq-len 1025", "error --seq-len 1025 is longer than"),
    (f"climb --fit 0 {ON_CPU}", "error on a CPU say how much memory there is to fill"),
    (f"climb --fit 0 {ON_CPU} --memory 4 --batch-size 2", "error --fit chooses B"),
    (f"climb 0 {ON_CPU} --memory 4", "error --memory is for --fit"),
]


@pytest.mark.parametrize(("words", "said"), CASES, ids=[words[:40] for words, _ in CASES])
def test_a_mistake_is_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(shlex.split(words))
    except SystemExit as stop:  # argparse's
        status = stop.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "") and not list(tmp_path.iterdir())
    lines = [line for line in err.splitlines() if not line.startswith("note  importing")]
    assert said in lines[-1] and (len(lines) == 1 or lines[0].startswith("usage: "))
