"""dev/publish.py: what a climb leaves in logs/, RUNLOG.md and README.md."""

from climbs import PUBLISHED, as_it_ran, change, climb_of

from dev import climbs, publish
from ladder.commands.main import program
from ladder.measure.folder import Climb, log_texts

OLDER = "\n## 2025-01-01: an older entry\n"


def test_publish_prepends_an_entry(tmp_path, monkeypatch, capsys, history):
    """Into a copy with one climb, of that climb at another date."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    (copy / "logs" / PUBLISHED.name).symlink_to(PUBLISHED)
    (copy / "README.md").write_text(f"<!-- measured logs/{PUBLISHED.name} -->\n<!-- end -->\n")
    (copy / "RUNLOG.md").write_text(f"# Run log\n{OLDER}")
    monkeypatch.setattr(publish, "ROOT", copy)
    monkeypatch.setattr(climbs, "ROOT", copy)
    as_it_ran(PUBLISHED, folder)
    commit = Climb.read_from(folder).commit
    change(folder, commit="0123456789ab")
    assert program(publish.main, [str(folder), "All is well."]) == 2
    assert "0123456789ab is not in HEAD's history" in capsys.readouterr().err
    change(folder, commit=commit)
    change(folder, started="2026-12-24 10:00", data="/home/me/texts")
    assert program(publish.main, [str(folder), "All is\nwell.", "--readme"]) == 0
    readme = (copy / "README.md").read_text()
    runlog = (copy / "RUNLOG.md").read_text()
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert f"<!-- table {name} -->" in runlog and runlog.endswith(OLDER)
    assert "<details><summary>All is well.</summary>" in runlog
    assert f"<!-- measured {name} -->" in readme
    assert Climb.read_from(copy / name).data == "texts"  # not where it lies
    assert log_texts(copy / name) == log_texts(PUBLISHED)


def test_a_script_that_is_in_no_commit_is_published_as_a_text(tmp_path):
    folder = climb_of(tmp_path / "climb", {"baseline": 20, "mine": 10})
    (folder / "code").mkdir()
    (folder / "code" / "mine.py").write_text("b = 1\n")
    publish.copy_climb(Climb.read_from(folder), tmp_path / "logs")
    assert (tmp_path / "logs" / "mine.py.txt").read_text() == "b = 1\n"
