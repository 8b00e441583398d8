"""`ladder report`: which climbs are on its page, and the page of the repository."""

import re
import shutil
import sys
import webbrowser

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
    for name, started in {"climb-3": "2026-11-20 10:00", "climb-2": "2026-11-21 09:00"}.items():
        climb_of(tmp_path / "runs" / name, TIMES, started=started)
    damaged = tmp_path / "runs" / "climb-1" / "climb.json"
    damaged.parent.mkdir()
    damaged.touch()
    _, _, shown, said = make()
    assert shown == ["climb-2"] and said.startswith("note  runs/climb-1/climb.json is not a climb")
    for day in ("20261119", "20261125"):
        shutil.copytree(TRAINED, tmp_path / "checkpoints" / f"{day}-000000-1")
        (tmp_path / f"checkpoints/{day}-000000-1/ddp_run-{day}-000000-000000.log").touch()
    _, _, shown, said = make()
    assert shown == ["checkpoints/20261125-000000-1"]
    assert f"note  this is {shown[0]}, which began last; also there: runs/climb-2" in said


def test_a_page_that_no_browser_shows_is_said(tmp_path, monkeypatch, capsys):
    """A text browser would take the terminal."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", pytest.fail)
    folder = climb_of(tmp_path / "climb", TIMES)
    assert main(["report", str(folder), "--out", str(tmp_path / "a.html"), "--open"]) == 0
    assert "note  no browser is open" in capsys.readouterr().out


def test_only_a_page_of_its_own_is_replaced(make, tmp_path):
    climb = climb_of(tmp_path / "climb", TIMES)
    out = tmp_path / "page.html"
    out.write_text("<html>my holidays</html>")
    status, page, _, said = make(climb)
    assert status == 2 and "is not a page of ladder report: choose another --out" in said
    assert page == "<html>my holidays</html>"
    out.write_text(f"{MARKER} old news")
    assert make(climb)[0] == 0 and "old news" not in out.read_text()
