"""dev/publish.py: what a climb leaves in logs/, a run log and README.md, and what it refuses."""

import pytest
from climbs import PUBLISHED, as_it_ran, change, edit

from dev import blocks, publish
from ladder.commands.main import program
from ladder.errors import UsageError
from ladder.measure.folder import Climb, log_texts

RUNLOGS = ("RUNLOG.md", "beyond/RUNLOG.md")
OLDER = "\n## 2025-01-01: an older entry\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, with one climb, and a climb to publish: that one at another date."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    (copy / "beyond").mkdir()
    (copy / "logs" / PUBLISHED.name).symlink_to(PUBLISHED)
    (copy / "README.md").write_text(f"<!-- measured logs/{PUBLISHED.name} -->\n<!-- end -->\n")
    for name in RUNLOGS:
        (copy / name).write_text(f"# Run log\n{OLDER}")
    monkeypatch.setattr(publish, "ROOT", copy)
    monkeypatch.setattr(blocks, "ROOT", copy)
    as_it_ran(PUBLISHED, folder)
    change(folder, started="2026-12-24 10:00")
    return copy, folder


def pages(copy):
    """README.md and the run logs."""
    return [(copy / name).read_text() for name in ("README.md", *RUNLOGS)]


def test_publish_prepends_an_entry(project, monkeypatch):
    """The second climb of a day gets a number. What is for the loss goes to beyond/."""
    copy, folder = project
    change(folder, data="/home/me/texts")
    assert program(publish.main, [str(folder), "All is\nwell.", "--readme"]) == 0
    readme, runlog, beyond = pages(copy)
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert f"<!-- table {name} -->" in runlog and runlog.endswith(OLDER)
    assert "<details><summary>All is well.</summary>" in runlog
    assert f"<!-- measured {name} -->" in readme and beyond.endswith(f"log\n{OLDER}")
    assert Climb.read_from(copy / name).data == "texts"  # not where it lies
    assert log_texts(copy / name) == log_texts(PUBLISHED)
    monkeypatch.setattr(publish, "LARGE", 1)
    monkeypatch.setattr(publish, "MIN_STEPS", 7)
    publish.publish(folder, "In the evening.")
    assert log_texts(copy / f"{name}-2") == log_texts(PUBLISHED)  # compressed
    assert pages(copy)[:2] == [readme, runlog]
    assert f"<!-- table {name}-2 -->" in pages(copy)[2]


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
