"""ladder roofline on a narrow screen."""

import pytest

from ladder.commands.main import main


@pytest.mark.parametrize("columns", ["40", "20"])
def test_no_figure_is_cut_on_a_narrow_screen(columns, monkeypatch, capsys):
    flags = ["roofline", "--gpu", "A100 SXM"]
    monkeypatch.setenv("COLUMNS", "80")
    assert main(flags) == 0
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", columns)
    assert main(flags) == 0
    assert capsys.readouterr().out == whole and "…" not in whole
