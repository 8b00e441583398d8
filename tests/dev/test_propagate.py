"""dev/propagate.py, in a copy of the scripts."""

import shutil
import subprocess

import pytest

from dev import propagate
from ladder import checkout
from ladder.checkout import ROOT
from ladder.measure import scripts
from ladder.measure.scripts import BRANCHES, all_scripts

BATCHES = "        batches = Batches(corpus, B, T, seed=args.seed, shuffle=args.shuffle)\n"
NAMES = [path.relative_to(ROOT).as_posix() for path in all_scripts()]


def git(folder, *words):
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", "-C", folder, *me, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the scripts, committed to a git repository of its own."""
    folder = tmp_path / "project"
    for name in ("speedups", *BRANCHES):
        shutil.copytree(ROOT / name, folder / name, ignore=lambda *_: ["__pycache__"])
    shutil.copy(ROOT / "baseline.py", folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "as it is")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(propagate, "require_own", lambda *_: None)  # the program is not in it
    for module in (checkout, scripts):
        monkeypatch.setattr(module, "ROOT", folder)
    monkeypatch.setattr(scripts, "bases", scripts.bases.__wrapped__)  # not the checkout's
    return folder


def texts():
    return [path.read_text(encoding="utf-8") for path in all_scripts()]


def edit(path, old, new):
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1
    path.write_text(source.replace(old, new), encoding="utf-8")


def test_an_edit_is_applied_to_all_later_rungs(project, capsys):
    """A line right below one that rungs 08, 09 and 10 change, and one of the docstring's list."""
    before = texts()
    new = BATCHES.replace("\n", "  # in order\n") + "        assert B * T > 0\n"
    edit(all_scripts()[3], BATCHES, new)
    edit(all_scripts()[3], "03 bf16 autocast: ", "03 bf16: ")
    assert propagate.main(["3"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{name} changed" for name in NAMES[4:]]
    after = texts()
    assert after[:3] == before[:3]
    for old, source in zip(before[4:], after[4:], strict=True):
        assert source == old.replace(BATCHES, new).replace("03 bf16 autocast: ", "03 bf16: ")
    assert propagate.main(["3"]) == 0
    assert texts() == after


def test_a_conflict_stops_it_and_is_marked(project, capsys):
    before = texts()
    edit(all_scripts()[5], "lr=LEARNING_RATE)", "lr=LEARNING_RATE, foreach=True)")
    assert propagate.main(["5"]) == 1
    after = texts()
    for source in after[5:9]:
        assert source.count("foreach=True") == 1
    assert after[:5] == before[:5] and after[9:] == before[9:]
    assert "<<<<<<< this script\n" in after[8]
    assert capsys.readouterr().out.endswith("\npython -m dev.propagate 08_adamw_clipping\n")
