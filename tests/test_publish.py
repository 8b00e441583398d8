"""`ladder publish`: what a climb leaves in logs/, RUNLOG.md and README.md."""

import shutil

import pytest
from conftest import ROOT

from ladder.commands import climb, publish
from ladder.errors import BadInput

FIRST_LOGS = ROOT / "logs" / "2026-11-21-amd-epyc-2-cores-first"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, and a climb to publish: the first one, with a climb.json."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    for path in (ROOT / "logs").iterdir():
        (copy / "logs" / path.name).symlink_to(path)
    for name in ("README.md", "RUNLOG.md"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(FIRST_LOGS, folder)
    facts = {
        "kind": "climb", "started": "2026-12-24 10:00", "device": "AMD EPYC (2 threads)",
        "scripts": ["baseline.py"], "repeats": 1, "data": None, "failures": {}, "cores": 2,
        "system": "Linux", "clocks": {"before": "1", "after": "2"}, "peak_flops": 1.5e12,
        "peak_dtype": "bfloat16",
    }  # fmt: skip
    climb.save(folder, facts)
    (folder / "climb.png").write_bytes(b"\x89PNG")
    (folder / "mine.py").write_text("made = True\n")
    monkeypatch.setattr(publish, "ROOT", copy)
    return copy, folder, facts


def test_publish_prepends_and_redraws(project):
    copy, folder, _ = project
    runlog = copy / "RUNLOG.md"
    runlog.write_text(runlog.read_text() + "\nA line by hand.\n")
    title, _, entries = runlog.read_text().partition("\n## ")
    publish.publish(folder, "All is well.")
    text = runlog.read_text()
    assert text.startswith(title) and text.endswith("\n## " + entries)
    new = text[len(title) : -len("\n## " + entries)]
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert "**Finding:** All is well." in new and f"<!-- table {name} -->" in new
    assert "| 00 baseline | 4641.9 |" in new
    readme = (copy / "README.md").read_text()
    assert f"<!-- cpu {name} -->" in readme and f"({name}/climb.png)" in readme
    assert (copy / name / "10_fused_adamw.r1.log").exists() and (copy / name / "mine.py").exists()
    with pytest.raises(BadInput, match="is published already"):
        publish.publish(folder, "Again.")
    assert runlog.read_text() == text


def test_what_an_ablation_made_is_not_published(project, monkeypatch):
    copy, folder, facts = project
    climb.save(folder, {**facts, "kind": "ablate"})
    monkeypatch.setattr(publish, "render", lambda text: text)
    publish.publish(folder, "It can be made again.")
    (target,) = copy.glob("logs/2026-12-24-*-ablate")
    assert (target / "baseline.r1.log").exists() and not (target / "mine.py").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" commit=306a0e4bd8ea ", " commit=306a0e4bd8ea-dirty ", "commit first"),
        (" model=gpt2 ", " model=tiny ", "only gpt2"),
        (" data=tinyshakespeare ", " data=python-docs ", "other text than tinyshakespeare"),
        ("", "", "was stopped: finish it"),
    ],
)
def test_what_is_not_fit_is_not_published(project, old, new, message):
    copy, folder, facts = project
    for path in folder.glob("*.log"):
        path.write_text(path.read_text().replace(old, new))
    if not old:
        climb.save(folder, {**facts, "clocks": {"before": "1"}})
    for _ in range(2):  # nothing is left behind that would be "published already"
        with pytest.raises(BadInput, match=message):
            publish.publish(folder, "No.")
    assert (copy / "RUNLOG.md").read_text() == (ROOT / "RUNLOG.md").read_text()
    assert len(list((copy / "logs").iterdir())) == len(list((ROOT / "logs").iterdir()))
