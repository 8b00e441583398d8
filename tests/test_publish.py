"""`ladder publish`: what a climb leaves in logs/, RUNLOG.md and README.md, and what it refuses."""

import json
import os
import shutil

import pytest
from conftest import ROOT

from ladder.commands import climb, diff, main, picture, publish
from ladder.commands.results import read_facts
from ladder.commands.scripts import all_scripts
from ladder.errors import BadInput

CLIMB = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb-3"  # 13 rungs, three rounds
TEN = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb"  # 11 rungs, three rounds, older
README = f"""# The ladder

<!-- headline -->
<!-- end -->

<!-- rungs -->
<!-- end -->

<!-- cpu logs/{CLIMB.name} -->
<!-- end -->

<!-- gpu none -->
<!-- end -->

<!-- machines -->
<!-- end -->
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, and a climb to publish: one of logs/ with a date and commit of its
    own."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    for path in (ROOT / "logs").iterdir():
        (copy / "logs" / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copy(ROOT / "RUNLOG.md", copy)
    monkeypatch.setattr(publish, "ROOT", copy)
    (copy / "README.md").write_text(publish.render(README))
    shutil.copytree(CLIMB, folder)
    (folder / "climb.png").unlink()
    (folder / "mine.py").write_text("made = True\n")
    change(folder, started="2026-12-24 10:00")
    return copy, folder


@pytest.fixture
def no_picture(monkeypatch):
    monkeypatch.setattr(picture, "draw", lambda facts, rows, path: path.write_bytes(b"\x89PNG"))


def change(folder, **facts):
    climb.save(folder, {**read_facts(folder), **facts})


def edit(folder, old, new):
    """Change all logs and climb.json of a climb."""
    for path in [*folder.glob("*.log"), folder / "climb.json"]:
        path.write_text(path.read_text().replace(old, new))


def state(copy):
    """All that publishing may change."""
    pages = [(copy / name).read_bytes() for name in publish.PAGES]
    return pages, sorted(path.name for path in (copy / "logs").iterdir())


def test_publish_prepends_and_redraws(project, capsys):
    copy, folder = project
    runlog = copy / "RUNLOG.md"
    runlog.write_text(runlog.read_text() + "\nA line by hand.\n")
    title, _, entries = runlog.read_text().partition("\n## ")
    publish.publish(folder, "All is\nwell.")
    text = runlog.read_text()
    assert text.startswith(title) and text.endswith("\n## " + entries)
    new = text[len(title) : -len("\n## " + entries)]
    name = "logs/2026-12-24-amd-epyc-2-threads-climb"
    assert f"published in {name}, README.md and RUNLOG.md: read" in capsys.readouterr().out
    assert "**Finding:** All is well." in new and f"<!-- table {name} -->" in new
    assert "| 00 baseline | 4882.4 | 4789.7 – 5597.8 | 210 |" in new and "| first loss |" in new
    readme = (copy / "README.md").read_text()
    assert f"<!-- cpu {name} -->" in readme and f"({name}/climb.png)" in readme
    assert f"| [2026-12-24]({name}) |" in readme and "2026-11-21" not in readme
    assert (copy / name / "10_fused_adamw.r1.log").exists() and (copy / name / "mine.py").exists()
    assert (copy / name / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert not (copy / name / "README.md").exists()
    before = state(copy)
    with pytest.raises(BadInput, match="is published already"):
        publish.publish(folder, "Again.")
    assert state(copy) == before


def test_an_ablation_goes_into_the_run_log_alone_and_without_what_it_made(project, no_picture):
    copy, folder = project
    change(folder, kind="ablate")
    before = (copy / "README.md").read_text()
    publish.publish(folder, "It can be made again.")
    (target,) = copy.glob("logs/2026-12-24-*-ablate")
    assert (target / "baseline.r1.log").exists() and not (target / "mine.py").exists()
    assert (copy / "README.md").read_text() == before
    assert "It can be made again." in (copy / "RUNLOG.md").read_text()


def test_tables_in_readme_have_six_columns(project):
    table = (project[0] / "README.md").read_text().partition("<!-- cpu ")[2]
    assert "| rung | ms | tok/s | gain | times the first | memory |" in table
    assert "| 10 fused AdamW | 1569.0 | 653 | +9.5 % (+5.0 … +14.2) | 3.24× | 3.14 GB |" in table


def test_the_table_of_rungs_says_what_the_scripts_and_the_logs_say(project):
    table = publish.rungs_table(README).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:15]]
    assert [cell[0] for cell in cells[::6]] == [
        "[00 baseline](baseline.py)",
        "[06 flash attention](speedups/06_flash_attention.py)",
        "[12 causal blocks](speedups/12_causal_blocks.py)",
    ]
    assert cells[2][1] == "FP32 matmuls may round their operands to TF32"
    scripts = all_scripts()
    for number, row in enumerate(cells[1:], 1):
        codes = map(diff.code_lines, scripts[number - 1 : number + 1])
        plus, minus = map(int, row[2].replace("−", "").split())
        assert plus + minus == len(diff.changed_lines(*codes))
    assert [row[3] for row in cells[:4]] == ["–", "+10.1 %", "within noise", "+161.0 %"]
    other = [row[4] for row in cells]
    assert other[:4] == ["1000 ms", "", "333 ms, +200 %", "300 ms, +11 %"]
    assert other[10:] == ["90 ms, +3 %", "", ""]
    assert "not ours: [Andrej Karpathy, one A100 80GB, B=16, T=1024](https://" in table[0]


def test_each_gpu_with_a_table_has_a_column_of_gains(project, monkeypatch):
    copy, folder = project
    edit(folder, "AMD EPYC (2 threads)", "NVIDIA H100 80GB HBM3")
    shutil.copytree(folder, copy / "logs" / "gpu")
    readme = publish.render(README.replace("gpu none", "gpu logs/gpu"))
    (head,) = [line for line in readme.splitlines() if line.startswith("| rung | the one change")]
    assert head.index("AMD EPYC") < head.index("measured here*: NVIDIA H100 80GB HBM3, B=4")
    words = "210 tokens per second; up to rung 10: 653, 3.2×; up to rung 12: 863, 4.2×"
    words += " (mean of 3 rounds)**"
    headline = readme.partition("<!-- headline -->\n")[2].splitlines()
    assert headline[0] == f"**NVIDIA H100 80GB HBM3: {words}\\"
    assert headline[1] == f"**AMD EPYC (2 threads): {words}"
    assert headline[3] == "![Tokens per second of each rung](logs/gpu/climb.png)"


def test_machines_have_a_row_each_with_their_newest_climb(project):
    copy, folder = project
    edit(folder, "AMD EPYC (2 threads)", "Apple M3 GPU")
    shutil.copytree(folder, copy / "logs" / "apple")
    change(folder, started="2026-12-25 10:00")
    for path in folder.glob("1[12]*"):  # its top is 10
        path.unlink()
    shutil.copytree(folder, copy / "logs" / "a-newer-one")
    for name, facts in (("small", {"flags": ["--seq-len=32"]}), ("kind", {"kind": "peers"})):
        change(folder, started="2026-12-26 10:00", **facts)
        shutil.copytree(folder, copy / "logs" / name)
        change(folder, flags=[])
    (epyc, apple) = sorted(publish.machines_table().splitlines()[2:])
    assert epyc.startswith("| AMD EPYC (2 threads), B=4, T=256 | 2.13.0+cpu | 210 | 653 | 863 (12)")
    assert epyc.endswith(f"| 4.23× | [2026-11-21](logs/{CLIMB.name}) |")
    assert apple.startswith("| Apple M3 GPU, B=4, T=256 | 2.13.0+cpu | 210 | 653 | 653 (10) |")
    assert apple.endswith("| 3.24× | [2026-12-25](logs/a-newer-one) |")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("34a7763c18e6", "34a7763c18e6-dirty", "commit first"),
        ('"commit": "34a7763c18e6', '"commit": "306a0e4bd8ea', "climb.json of 306a0e4bd8ea"),
        (" model=gpt2 ", " model=tiny ", "only gpt2"),
        (" data=tinyshakespeare ", " data=python-docs ", "other text than tinyshakespeare"),
        ('"data": null', '"data": "/home/me/texts"', "other text than tinyshakespeare"),
        ('"after"', '"before"', "was stopped: finish it"),
        ('"cores"', '"quick": true, "cores"', "is a quick climb"),
        ('"kind": "climb"', '"kind": "x/../../../pwned"', "kind is not as ladder climb"),
        ('"kind": "climb"', '"kind": "race"', "kind is not as ladder climb"),
        ('"started": "2026-12-24', '"started": "../../../pwned', "started is not as"),
        ('"device": "AMD', '"device": "AMD\\n<!-- end -->', "device is not as"),
        (" B=4 ", " ", "KeyError"),
        ("dt  ", "dt -", "took no time|makes no sense"),
    ],
)
def test_what_is_not_fit_is_not_published(project, old, new, message):
    copy, folder = project
    before = state(copy)
    edit(folder, old, new)
    for _ in range(2):  # nothing is left behind that would be "published already"
        with pytest.raises(BadInput, match=message):
            publish.publish(folder, "No.")
    assert state(copy) == before and not (copy.parent / "pwned").exists()


@pytest.mark.parametrize("text", ["[]", "{}", "null", "3"])
def test_a_climb_json_that_is_none_is_one_line(project, text):
    (project[1] / "climb.json").write_text(text)
    with pytest.raises(BadInput, match=r"climb\.json: .* ladder climb writes it"):
        publish.publish(project[1], "No.")


@pytest.mark.parametrize("name", ["mine.py", "baseline.r1.log", "climb.json"])
@pytest.mark.parametrize("make", ["symlink", "fifo", "folder"])
def test_links_and_devices_are_not_followed(project, name, make):
    copy, folder = project
    before, path = state(copy), folder / name
    path.rename(copy.parent / "secret")
    if make == "symlink":
        path.symlink_to(copy.parent / "secret")
    else:
        os.mkfifo(path) if make == "fifo" else path.mkdir()
    with pytest.raises(BadInput, match=f"{name} is not a regular file"):
        publish.publish(folder, "No.")
    assert state(copy) == before


def test_what_fails_half_way_changes_nothing(project, no_picture, monkeypatch):
    copy, folder = project
    before = state(copy)
    with pytest.raises(BadInput, match=r"the finding has a character .* 'It is \\udcff'"):
        publish.publish(folder, "It is \udcff")
    assert state(copy) == before

    def full(source, target):
        raise OSError(28, "No space left on device", "somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy", full)
        with pytest.raises(BadInput, match="cannot write somewhere: No space left"):
            publish.publish(folder, "The disk is full.")
    assert state(copy) == before
    broken = (copy / "README.md").read_text() + "\n<!-- cpu-peers logs/none -->\n<!-- end -->\n"
    (copy / "README.md").write_text(broken)
    before = state(copy)
    with pytest.raises(BadInput, match="holds no logs"):
        publish.publish(folder, "Another table cannot be made.")
    assert state(copy) == before


def fewer_rungs(folder):
    for path in folder.glob("0[2-9]_*"):
        path.unlink()
    change(folder, scripts=["baseline.py", "speedups/01_weight_tying.py"])
    for path in folder.glob("1[0-2]_*"):
        path.unlink()


def other_size(folder):
    edit(folder, " B=4 T=256 ", " B=1 T=32 ")
    change(folder, flags=["--batch-size=1", "--seq-len=32"])


def fewer_rounds(folder):
    for path in folder.glob("*.r3.log"):
        path.unlink()


@pytest.mark.parametrize(
    ("worse", "size"),
    [
        (fewer_rungs, "2 scripts at B=4, T=256 in 3 rounds"),
        (other_size, "13 scripts at B=1, T=32 in 3 rounds"),
        (fewer_rounds, "13 scripts at B=4, T=256 in 2 rounds"),
    ],
)
def test_a_table_is_replaced_by_a_lesser_one_only_by_force(project, no_picture, worse, size):
    copy, folder = project
    worse(folder)
    before = state(copy)
    better = rf"logs/{CLIMB.name} \(13 scripts at B=4, T=256 in 3 rounds\)"
    with pytest.raises(BadInput, match=f"would show {size} instead of {better}: --force"):
        publish.publish(folder, "Less.")
    assert state(copy) == before
    assert main(["publish", str(folder), "Less.", "--force"]) == 0
    assert "<!-- cpu logs/2026-12-24-" in (copy / "README.md").read_text()


def test_a_first_table_has_the_ten_rungs_at_the_default_size(project, no_picture):
    copy, folder = project
    edit(folder, "AMD EPYC (2 threads)", "NVIDIA H100 80GB HBM3")
    kept = shutil.copytree(folder, folder.with_name("kept"))
    fewer_rungs(folder)
    with pytest.raises(BadInput, match="instead of all scripts up to rung 10 at the default"):
        publish.publish(folder, "Two rungs.")
    publish.publish(kept, "All of them.")
    readme = (copy / "README.md").read_text()
    name = "logs/2026-12-24-nvidia-h100-80gb-hbm3-climb"
    assert f"<!-- gpu {name} -->" in readme and f"<!-- cpu logs/{CLIMB.name} -->" in readme


def test_another_machine_gets_a_row_and_not_the_table(project, no_picture, capsys):
    copy, folder = project
    edit(folder, "AMD EPYC (2 threads)", "Intel Xeon (8 threads)")
    publish.publish(folder, "Another machine.")
    assert "README.md's table stays that of another machine" in capsys.readouterr().out
    readme = (copy / "README.md").read_text()
    assert f"<!-- cpu logs/{CLIMB.name} -->" in readme
    assert readme.count("| Intel Xeon (8 threads), B=4, T=256 |") == 1


def test_a_climb_that_begins_elsewhere_takes_no_place_in_readme(project, no_picture):
    copy, folder = project
    (folder / "baseline.r1.log").unlink()
    for path in folder.glob("baseline*"):
        path.unlink()
    facts = read_facts(folder)
    change(folder, scripts=facts["scripts"][1:])
    before = (copy / "README.md").read_text()
    publish.publish(folder, "From 01 on.")
    assert (copy / "README.md").read_text() == before
    assert "## 2026-12-24: AMD EPYC (2 threads): some scripts" in (copy / "RUNLOG.md").read_text()


def test_climb_writes_what_publish_expects(tmp_path, monkeypatch):
    """A new key of climb.json that holds text needs a line in FACTS or SHARED to be shared."""
    import argparse

    from ladder.commands import process, share
    from ladder.commands.climb import add_run_arguments, new_folder

    answer = {"device": "AMD EPYC (2 threads)", "peak_flops": 1.0, "peak_dtype": "bfloat16"}
    done = process.Finished(
        json.dumps({**answer, "peak_shape": [1, 1, 1], "clocks": "2596 MHz"}), "", 0, None
    )
    monkeypatch.setattr(process, "run_python", lambda *words, **env: done)
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    args = parser.parse_args(["--out", str(tmp_path / "new"), "--steps", "4"])
    facts = read_facts(new_folder(args, "climb", all_scripts()[:2]))
    facts["commit"] = "0" * 12
    assert not share.find_wrong(facts, share.FACTS) and not share.find_wrong(facts, share.SHARED)
    assert share.clean_facts(facts) == facts
