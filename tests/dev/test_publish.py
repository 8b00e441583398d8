"""dev/publish.py: what a climb leaves in logs/, RUNLOG.md and README.md."""

import pytest
from climbs import PUBLISHED, as_it_ran, change

from dev import blocks, publish
from ladder.commands.main import program
from ladder.measure.folder import Climb, log_texts

OLDER = "\n## 2025-01-01: an older entry\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, with one climb, and a climb to publish: that one at another date."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    (copy / "logs" / PUBLISHED.name).symlink_to(PUBLISHED)
    (copy / "README.md").write_text(f"<!-- measured logs/{PUBLISHED.name} -->\n<!-- end -->\n")
    (copy / "RUNLOG.md").write_text(f"# Run log\n{OLDER}")
    monkeypatch.setattr(publish, "ROOT", copy)
    monkeypatch.setattr(blocks, "ROOT", copy)
    as_it_ran(PUBLISHED, folder)
    change(folder, started="2026-12-24 10:00")
    return copy, folder


def pages(copy):
    return [(copy / name).read_text() for name in ("README.md", "RUNLOG.md")]


def test_publish_prepends_an_entry(project):
    copy, folder = project
    change(folder, data="/home/me/texts")
    assert program(publish.main, [str(folder), "All is\nwell.", "--readme"]) == 0
    readme, runlog = pages(copy)
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert f"<!-- table {name} -->" in runlog and runlog.endswith(OLDER)
    assert "<details><summary>All is well.</summary>" in runlog
    assert f"<!-- measured {name} -->" in readme
    assert Climb.read_from(copy / name).data == "texts"  # not where it lies
    assert log_texts(copy / name) == log_texts(PUBLISHED)
