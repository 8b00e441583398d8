"""dev/publish.py: what a climb leaves in logs/, RUNLOG.md and README.md, and what it refuses."""

import re
import shutil

import blocks
import publish
import pytest
from climbs import PUBLISHED, as_it_ran, change, climb_of, edit

from ladder.commands.main import program
from ladder.errors import UsageError
from ladder.files import ROOT
from ladder.measure.folder import Climb, log_texts

CPU, GPU = "AMD EPYC (2 threads)", "NVIDIA H100 80GB HBM3"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, and a climb to publish: one of logs/ with a date of its own."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    for path in (ROOT / "logs").glob("2*"):
        (copy / "logs" / path.name).symlink_to(path)
    for name in ("docs", "candidates", "beyond"):
        (copy / name).symlink_to(ROOT / name)
    for name in ("README.md", "RUNLOG.md"):
        shutil.copy(ROOT / name, copy)
    # Whatever README.md shows now, here it is this climb.
    readme = (copy / "README.md").read_text()
    shown = f"<!-- measured logs/{PUBLISHED.name} -->"
    (copy / "README.md").write_text(re.sub("<!-- measured .*? -->", shown, readme))
    monkeypatch.setattr(publish, "ROOT", copy)
    monkeypatch.setattr(blocks, "ROOT", copy)
    as_it_ran(PUBLISHED, folder)
    change(folder, started="2026-12-24 10:00")
    return copy, folder


def state(copy):
    """All that publishing may change."""
    pages = [(copy / name).read_text() for name in ("README.md", "RUNLOG.md")]
    return pages, sorted(p.name for p in (copy / "logs").iterdir())


def results(copy):
    """README.md, and the climbs that it names as measured."""
    readme = (copy / "README.md").read_text()
    return readme, readme.partition("<!-- measured ")[2].partition(" -->")[0].split()


def test_publish_prepends_and_makes_readme_anew(project):
    """Once; the second climb of a day gets a number."""
    copy, folder = project
    _, older = (copy / "RUNLOG.md").read_text().split("\n## 2", 1)
    assert program(publish.run, [str(folder), "All is\nwell.", "--readme"]) == 0
    text = (copy / "RUNLOG.md").read_text()
    new, same = text.partition("## Machines")[2].split("\n## 2", 2)[1:]
    assert same == older
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert "<details><summary>All is well.</summary>" in new and f"<!-- table {name} -->" in new
    readme, named = results(copy)
    assert named == [name] and f"([logs]({name}))" in readme
    assert sorted(path.name for path in (copy / name).iterdir()) == ["climb.json", "runs.log"]
    assert log_texts(copy / name) == log_texts(PUBLISHED)
    before = state(copy)
    with pytest.raises(UsageError, match="has this climb already"):
        publish.publish(folder, "Again.")
    assert state(copy) == before
    change(folder, started="2026-12-24 18:00")
    publish.publish(folder, "In the evening.")
    assert results(copy)[1] == [name] and f"<!-- table {name}-2 -->" in state(copy)[0][1]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"ended": true', '"ended": false', "it was stopped: ladder climb --resume"),
        ('"quick": false', '"quick": true', "a quick climb is not published"),
        (" model=gpt2 ", " model=tiny ", "below 100 steps only gpt2 on tinyshakespeare"),
        ("data_sha256=86", "data_sha256=87", "below 100 steps only gpt2 on tinyshakespeare"),
        ("34a7763c18e6", "34a7763c18e6-dirty", "only committed code"),
        ("compiled=yes", "compiled=no", "05_torch_compile ran compiled=no, not yes"),
        ('"speedups/12_causal_blocks', '"mine', "was over before mine could run"),
    ],
)
def test_what_may_not_be_published_changes_nothing(project, old, new, why):
    copy, folder = project
    before = state(copy)
    edit(folder, old, new)
    with pytest.raises(UsageError, match=why):
        publish.publish(folder, "No.")
    assert state(copy) == before


def test_a_climb_for_the_loss_may_have_been_stopped_after_a_whole_round(project, monkeypatch):
    copy, folder = project
    monkeypatch.setattr(publish, "MIN_STEPS", 7)
    edit(folder, '"ended": true', '"ended": false')
    publish.publish(folder, "Stopped.")
    assert "; stopped in or after round 3 of 3, interleaved;" in (copy / "RUNLOG.md").read_text()
    change(folder, started="2026-12-25 18:00")
    for path in folder.glob("*.r[23].log"):
        path.unlink()
    with pytest.raises(UsageError, match="it was stopped"):
        publish.publish(folder, "In its first round.")


def test_what_does_not_begin_with_the_baseline_goes_into_the_run_log_alone(project):
    """With its script that is in no commit, from the copy of the code that it ran."""
    copy, folder = project
    before = (copy / "README.md").read_text()
    for path in folder.glob("baseline*"):
        path.rename(folder / path.name.replace("baseline", "mine"))
    (folder / "code").mkdir()
    (folder / "code" / "mine.py").write_text("made = True\n")
    change(folder, scripts=[*Climb.read_from(folder).scripts[1:], "mine.py"])
    with pytest.raises(UsageError, match="only climbs in which rungs 0 to 10"):
        publish.publish(folder, "Into README.md, too.", in_readme=True)
    publish.publish(folder, "From 01 on.")
    assert (copy / "README.md").read_text() == blocks.render(before)
    assert [path.name for path in copy.glob("logs/2026-12-24-*/*.py")] == ["mine.py"]


def test_a_gpu_stands_above_a_cpu(project):
    copy, folder = project
    readme, before = results(copy)
    assert blocks.NO_GPU in blocks.render(readme)
    edit(folder, CPU, GPU)
    change(folder, device_type="cuda")
    publish.publish(folder, "A GPU.", in_readme=True)
    readme, named = results(copy)
    assert named == ["logs/2026-12-24-nvidia-h100-80gb-hbm3-climb", *before]
    assert blocks.NO_GPU not in readme
    assert re.findall(r"docs/(measured-[a-z]+).svg", readme) == ["measured-cuda", "measured-cpu"]
    assert readme.index(f"*{GPU}") < readme.index(f"*{CPU}")


def test_machines_have_a_row_each_with_their_newest_climb(project):
    copy, folder = project
    edit(folder, CPU, "Apple M3 GPU")
    shutil.copytree(folder, copy / "logs" / "2026-12-24-m3")
    change(folder, started="2026-12-25 10:00")
    for path in folder.glob("1[12]*"):  # its top is 10
        path.unlink()
    shutil.copytree(folder, copy / "logs" / "2026-12-25-m3")
    (row,) = [line for line in blocks.machines_table().splitlines() if "Apple M3 GPU" in line]
    m3 = "| 659 (10) | 3.24× (2.95 … 3.56) | [2026-12-25](logs/2026-12-25-m3) |"
    assert row.replace("\N{NO-BREAK SPACE}", " ").endswith(m3)


def test_another_model_s_climb_is_marked_and_not_for_readme(project, tmp_path):
    """From 100 steps on; below, gpt2 on tinyshakespeare alone is published."""
    copy, _ = project
    times = {"baseline": 20, "01_weight_tying": 10}
    losses = dict.fromkeys(times, [[9.0] * 99 + [8.0]] * 3)
    facts = dict(started="2026-12-24 10:00", commit="0123456789ab", run={"model": "tiny"})
    facts |= dict(ended=True)
    folder = climb_of(tmp_path / "tiny", times, device="CPU", losses=losses, **facts)
    before = state(copy)
    with pytest.raises(UsageError, match="shows the speed of gpt2 on tinyshakespeare, not of tiny"):
        publish.publish(folder, "It ends lower.", in_readme=True)
    assert state(copy) == before
    publish.publish(folder, "It ends lower.")
    runlog = (copy / "RUNLOG.md").read_text()
    entry = runlog.partition("## 2026-12-24: CPU: the climb\n")[2].partition("\n## ")[0]
    assert ", tiny, B=" in entry and "time to the loss of 00 baseline" in entry
    assert "| CPU |" not in runlog.partition("<!-- machines -->")[2]  # it is of speeds


def test_large_logs_are_compressed_and_no_path_is_published(project, monkeypatch):
    copy, folder = project
    change(folder, data="/home/me/texts")
    monkeypatch.setattr(publish, "LARGE", 1)
    publish.publish(folder, "Large.")
    (target,) = copy.glob("logs/2026-12-24-*")
    assert sorted(path.name for path in target.iterdir()) == ["climb.json", "runs.log.xz"]
    assert Climb.read_from(target).data == "texts"
    assert log_texts(target) == log_texts(PUBLISHED)
