"""dev/publish.py: what a climb leaves in logs/, RUNLOG.md and README.md, and what it refuses."""

import blocks
import publish
import pytest
from climbs import PUBLISHED, as_it_ran, change, edit

from ladder.commands.main import program
from ladder.errors import UsageError
from ladder.files import ROOT
from ladder.measure.folder import Climb, log_texts

CPU, GPU = "AMD EPYC (2 threads)", "NVIDIA H100 80GB HBM3"
OLDER = "\n## 2025-01-01: an older entry\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, with one climb, and a climb to publish: that one at another date."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    (copy / "logs" / PUBLISHED.name).symlink_to(PUBLISHED)
    # Pages without what other climbs show: rendering them takes long.
    (copy / "README.md").write_text(f"<!-- measured logs/{PUBLISHED.name} -->\n<!-- end -->\n")
    runlog = (ROOT / "RUNLOG.md").read_text().partition("\n## 2")[0]
    (copy / "RUNLOG.md").write_text(f"{runlog}{OLDER}")
    monkeypatch.setattr(publish, "ROOT", copy)
    monkeypatch.setattr(blocks, "ROOT", copy)
    as_it_ran(PUBLISHED, folder)
    change(folder, started="2026-12-24 10:00")
    return copy, folder


def pages(copy):
    """README.md and RUNLOG.md."""
    return [(copy / name).read_text() for name in ("README.md", "RUNLOG.md")]


def test_publish_prepends_and_makes_readme_anew(project, monkeypatch):
    """The second climb of a day gets a number."""
    copy, folder = project
    change(folder, data="/home/me/texts")
    assert program(publish.run, [str(folder), "All is\nwell.", "--readme"]) == 0
    readme, runlog = pages(copy)
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert f"<!-- table {name} -->" in runlog and runlog.endswith(OLDER)
    assert "<details><summary>All is well.</summary>" in runlog
    assert f"<!-- measured {name} -->" in readme and f"([logs]({name}))" in readme
    assert Climb.read_from(copy / name).data == "texts"  # not where it lies
    assert log_texts(copy / name) == log_texts(PUBLISHED)
    monkeypatch.setattr(publish, "LARGE", 1)
    publish.publish(folder, "In the evening.")
    assert log_texts(copy / f"{name}-2") == log_texts(PUBLISHED)  # compressed
    assert f"<!-- table {name}-2 -->" in pages(copy)[1]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"ended": true', '"ended": false', "it was stopped: ladder climb --resume"),
        (" model=gpt2 ", " model=tiny ", "below 100 steps only gpt2 on tinyshakespeare"),
        ("34a7763c18e6", "34a7763c18e6-dirty", "only committed code"),
        ("compiled=yes", "compiled=no", "compiled=no, not yes"),
        ('"speedups/12_causal_blocks', '"mine', "was over before .*mine.* could run"),
    ],
)
def test_what_may_not_be_published_changes_nothing(project, old, new, why):
    copy, folder = project
    before = pages(copy)
    edit(folder, old, new)
    with pytest.raises(UsageError, match=why):
        publish.publish(folder, "No.")
    assert pages(copy) == before and not [*copy.glob("logs/2026-12-24-*")]


def test_a_climb_for_the_loss_may_be_of_another_model(project, monkeypatch):
    """README.md does not show it, and its speed is not in the table of machines."""
    copy, folder = project
    monkeypatch.setattr(publish, "MIN_STEPS", 7)
    edit(folder, " model=gpt2 ", " model=tiny ")
    edit(folder, CPU, GPU)
    with pytest.raises(UsageError, match="not of tiny on tinyshakespeare"):
        publish.publish(folder, "It ends lower.", in_readme=True)
    publish.publish(folder, "It ends lower.")
    assert f"| {GPU}" not in pages(copy)[1]


def test_a_script_from_outside_is_published_with_its_climb(project):
    """From the copy of the code that it ran. README.md does not show it."""
    copy, folder = project
    for path in folder.glob("baseline*"):
        path.rename(folder / path.name.replace("baseline", "mine"))
    change(folder, scripts=[*Climb.read_from(folder).scripts[1:], "mine.py"])
    (folder / "code").mkdir()
    (folder / "code" / "mine.py").write_text("made = True\n")
    with pytest.raises(UsageError, match="only climbs of rungs 0 to 10"):
        publish.publish(folder, "Into README.md, too.", in_readme=True)
    publish.publish(folder, "From 01 on.")
    assert [path.name for path in copy.glob("logs/2026-12-24-*/*.py")] == ["mine.py"]
