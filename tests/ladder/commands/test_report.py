"""`ladder report`: which climbs are on its page, and the page of the repository."""

import os
import re
import shutil

import pytest
from climbs import LOGS, climb_of

from ladder.commands.main import main
from ladder.show.page import MARKER

TRAINED = LOGS / "2026-11-25-amd-epyc-1-thread-train-tiny"
TIMES = {"baseline": 20, "01_weight_tying": 18}


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    """make(*words): the status, the page, the climbs on it, and what was printed."""
    monkeypatch.chdir(tmp_path)  # away from runs/

    def run(*words):
        status = main(["report", *map(str, words), "--out", "page.html"])
        page = (tmp_path / "page.html").read_text()
        shown = re.findall('<section id="(.*?)"', page)
        return status, page, shown, "".join(capsys.readouterr())

    return run


def test_the_newest_climb_or_run_is_shown(make, tmp_path):
    assert main(["report"]) == 2  # there is none
    for number, name in enumerate(("climb-3", "climb-2"), 1):
        folder = climb_of(tmp_path / "runs" / name, TIMES)
        os.utime(folder / "climb.json", (number, number))
    _, _, shown, _ = make()
    assert shown == ["climb-2"]
    shutil.copytree(TRAINED, tmp_path / "checkpoints" / "mine")
    (tmp_path / "checkpoints" / "mine" / "ddp_run-1.log").touch()
    assert make()[2] == ["checkpoints/mine"]


def test_only_a_page_of_its_own_is_replaced(make, tmp_path):
    climb = climb_of(tmp_path / "climb", TIMES)
    out = tmp_path / "page.html"
    out.write_text("<html>my holidays</html>")
    status, page, _, said = make(climb)
    assert status == 2 and "is not a page of ladder report: choose another --out" in said
    assert page == "<html>my holidays</html>"
    out.write_text(f"{MARKER} old news")
    assert make(climb)[0] == 0 and "old news" not in out.read_text()
