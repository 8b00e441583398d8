"""main.py: the `ladder` command, and bad input to it, which is told in one line with status 2."""

import os
import shlex
import signal

import pytest
from helpers import refused

from ladder.checkout import ROOT
from ladder.commands.main import program

CASES = [
    ("clmib", "error there is no command clmib: expected climb, diff"),
    ("climb 0-99", "error there is no rung 99: there are 0, 1, 2, 3, "),
    ("climb 5-3", "no rung 3 is built on 5"),
    (f"diff 3 {ROOT}/pyproject.toml", "pyproject.toml is not a Python script"),
    ("diff nothing.py 3", "nothing.py is neither a rung (its number or a part of its name) nor a"),
    ("diff comiple", "nor a script; did you mean compile?"),
    ("diff adamw", "adamw is 08_adamw_clipping or 10_fused_adamw"),
    ("roofline --gpu banana", "--gpu banana: in no data sheet here; --help lists"),
    ("climb --resume runs", "error runs is not a climb's: it has no climb.json"),
    ("climb 0 --batch-size 9999", "corpus tinyshakespeare has 338025 tokens, but"),
    ("climb --without 6 --device cpu", "none of these changes can be taken back"),
    ("climb 0 --out /", "error /: File exists"),
    (f"report {ROOT}/pyproject.toml", "pyproject.toml is not a log of this ladder: "),
]


@pytest.mark.parametrize(("words", "said"), CASES, ids=[words[:40] for words, _ in CASES])
def test_a_mistake_is_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, *shlex.split(words))
    assert line.startswith("error ") and said in line
    assert not list(tmp_path.iterdir())


def test_a_second_signal_does_not_disturb_what_the_first_has_to_save():
    saved = []

    def work():
        try:
            os.kill(os.getpid(), signal.SIGHUP)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            saved.append(True)

    assert program(work) == 128 + signal.SIGHUP
    assert saved


def test_the_system_s_no_is_a_line_and_a_bug_keeps_its_traceback(capsys):
    assert program(os.listdir, "/no/folder") == 2
    assert capsys.readouterr().err == "error /no/folder: No such file or directory\n"
    with pytest.raises(ZeroDivisionError):
        program(lambda: 1 / 0)
