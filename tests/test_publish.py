"""`ladder publish`: what a climb leaves in logs/, RUNLOG.md and README.md, and what it refuses."""

# ruff: noqa: F811 (a fixture of test_climb.py)
import argparse
import json
import os
import re
import shutil
import signal
from contextlib import closing

import pytest
from conftest import ROOT
from test_climb import no_peak  # noqa: F401

from ladder.commands import climb, diff, main, picture, publish, share, tables
from ladder.commands.kinds import kind_of
from ladder.commands.results import compare, read_climb, read_facts
from ladder.commands.scripts import all_scripts, select
from ladder.errors import BadInput
from ladder.files import lock

CLIMB = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-climb-3"  # 13 rungs, three rounds
ABLATION = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-ablate-2"
CPU, GPU = "AMD EPYC (2 threads)", "NVIDIA H100 80GB HBM3"
MEASURED = '"measured_steps": 5, "warmup_steps": 2'  # in its logs


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy to publish into, and a climb to publish: one of logs/ with a date and commit of its
    own."""
    copy, folder = tmp_path / "project", tmp_path / "climb"
    (copy / "logs").mkdir(parents=True)
    for path in (ROOT / "logs").glob("2*"):
        (copy / "logs" / path.name).symlink_to(path)
    (copy / "docs").symlink_to(ROOT / "docs")
    for name in publish.PAGES:
        shutil.copy(ROOT / name, copy)
    monkeypatch.setattr(publish, "ROOT", copy)
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
    return pages, sorted(p.name for p in (copy / "logs").iterdir() if p.name != ".lock")


def results(copy):
    """README.md, and what the marker of its results names."""
    readme = (copy / "README.md").read_text()
    return readme, readme.partition("<!-- results ")[2].partition(" -->")[0].split()


def cells_of(readme, head):
    """The cells of the table with this head, the head included."""
    lines = readme[readme.index(f"| {head} |") :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[0] == "|"]


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
    assert "| 00 baseline | 5031.2 | 4789.7 – 5597.8 | 204 |" in new and "| first loss |" in new
    readme, named = results(copy)
    assert named == [name] and f"({name}/climb.png)" in readme
    assert f"| [2026-12-24]({name}) |" in readme
    assert (copy / name / "10_fused_adamw.r1.log").exists() and (copy / name / "mine.py").exists()
    assert (copy / name / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert not (copy / name / "README.md").exists()
    before = state(copy)
    with pytest.raises(BadInput, match="is published already"):
        publish.publish(folder, "Again.")
    assert state(copy) == before


def test_a_corpus_whose_name_is_no_formula_is_drawn(tmp_path):
    facts, rows = read_climb(CLIMB)
    for row in rows:
        row.logs[1].run["data"] = "prices in $_and_$"
    rows[0].stem = "caf\udce9"  # a file name that is not UTF-8
    picture.draw(facts, rows, tmp_path / "climb.png")
    assert (tmp_path / "climb.png").exists()


def test_a_folder_of_others_is_no_climb_whatever_links_it_has(tmp_path):
    (tmp_path / "sbin").symlink_to("/")
    with pytest.raises(BadInput, match="holds no logs of a climb"):
        read_climb(tmp_path)


def test_two_scripts_of_equal_labels_have_a_bar_each(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(picture, "write_whole", lambda _, save: figures.append(save.func.__self__))
    facts, rows = read_climb(CLIMB)
    rows[0].stem, rows[1].stem = "my_idea", "my idea"
    picture.draw(facts, rows, tmp_path / "climb.png")
    axes = figures[0].axes[0]
    assert [bar.get_y() + bar.get_height() / 2 for bar in axes.patches] == [*range(len(rows))]
    assert [tick.get_text() for tick in axes.get_yticklabels()][:2] == ["my idea"] * 2


def test_a_block_of_readme_that_lost_a_marker_takes_no_text_with_it(project):
    copy, folder = project
    good, pages = (copy / "README.md").read_text(), {}
    for block in "headline", "results":
        before, begin, rest = good.partition(f"<!-- {block} ")
        pages[before + begin + rest.replace("<!-- end -->", "", 1)] = "a block without its begin or"
    pages[re.sub("<!-- results .*?<!-- end -->", "", good, flags=re.DOTALL)] = "no block of results"
    for text, why in pages.items():
        (copy / "README.md").write_text(text)
        before = state(copy)
        with pytest.raises(BadInput, match=f"README.md has {why}"):
            publish.publish(folder, "No.")
        assert state(copy) == before


def test_a_full_disk_is_told_with_the_name_of_the_picture(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")  # as Pillow's: it names no file

    monkeypatch.setattr(picture.Figure, "savefig", full)
    with pytest.raises(OSError) as caught:
        picture.draw(*read_climb(CLIMB), tmp_path / "climb.png")
    assert caught.value.filename == str(tmp_path / "climb.png")


def test_after_a_publish_that_was_killed_nothing_in_logs_is_deleted(project, no_picture):
    copy, folder = project
    publish.publish(folder, "All is well.")
    after = state(copy)
    for page in publish.PAGES:  # before the pages took their places
        shutil.copy(ROOT / page, copy)
    killed, (target,) = state(copy), copy.glob("logs/2026-12-24-*")
    other = shutil.copytree(folder, folder.with_name("other"))  # it would show the first one's row
    change(other, started="2026-12-25 10:00")
    for source in (folder, target, other):
        with pytest.raises(BadInput, match=r"no entry .* move it elsewhere first"):
            publish.publish(source, "All is well.")
    assert state(copy) == killed
    publish.publish(target.rename(folder.with_name("elsewhere")), "All is well.")
    assert state(copy) == after
    shutil.copy(copy / "README.md", target)  # killed between RUNLOG.md and README.md
    with pytest.raises(BadInput, match=rf"but for README.md: mv logs/{target.name}/README.md"):
        publish.publish(folder, "All is well.")


def test_a_publish_that_was_killed_at_its_second_copy_is_noticed(
    project, no_picture, monkeypatch, capsys
):
    copy, folder = project
    real = shutil.copy

    def killed(source, target):
        if any(target.iterdir()):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(publish.shutil, "copy", killed)
        patch.setattr(publish.shutil, "rmtree", lambda *_, **__: None)  # SIGKILL cleans up nothing
        assert main(["publish", str(folder), "Half."]) == 130
    left = state(copy)
    assert main(["publish", str(folder), "Whole."]) == 2 and state(copy) == left
    assert "move it elsewhere first" in capsys.readouterr().err


def test_what_is_no_climb_from_the_baseline_goes_into_the_run_log_alone(project, no_picture):
    """And of an ablation its scripts do not: they can be made again."""
    copy, folder = project
    before = (copy / "README.md").read_text()
    ablation = shutil.copytree(ABLATION, folder.with_name("ablation"))
    (ablation / "mine.py").write_text("made = True\n")
    change(ablation, started="2026-12-24 10:00")
    publish.publish(ablation, "It can be made again.")
    (target,) = copy.glob("logs/2026-12-24-*-ablate")
    assert (target / "without_02_tf32.r1.log").exists() and not (target / "mine.py").exists()
    for path in folder.glob("baseline*"):
        path.unlink()
    change(folder, scripts=read_facts(folder)["scripts"][1:])
    publish.publish(folder, "From 01 on.")
    runlog = (copy / "RUNLOG.md").read_text()
    assert (copy / "README.md").read_text() == before and "It can be made again." in runlog
    assert f"## 2026-12-24: {CPU}: some scripts" in runlog


def test_a_gpu_takes_the_place_of_a_cpu_and_readme_keeps_its_200_lines(project, no_picture):
    copy, folder = project
    readme, before = results(copy)
    assert "A GPU has not been measured yet." in readme
    assert "\n| rung | ms | tok/s | gain | times the first | memory |\n" in readme
    edit(folder, CPU, GPU)
    publish.publish(folder, "A GPU.")
    gpu = "logs/2026-12-24-nvidia-h100-80gb-hbm3-climb"
    readme, named = results(copy)
    assert named == [gpu, *before] and len(readme.splitlines()) <= 200
    assert readme.count("| 12 causal blocks |") == 1 and f"\n{GPU}, torch 2.13.0+cpu, " in readme
    headline = readme.partition("<!-- headline -->\n")[2].splitlines()
    words = "204 tokens per second; up to rung 10: 659, 3.2×; up to rung 12: 861, 4.2×"
    words += " (mean of 3 rounds)**"
    assert headline[:2] == [f"**{GPU}: {words}\\", f"**{CPU}, a CPU: {words}"]
    assert headline[3] == f"![Tokens per second of each rung]({gpu}/climb.png)"
    head = " | ".join(cells_of(readme, "rung | the one change")[0])
    assert 0 < head.index(f"measured here*: {CPU}, B=4") < head.index(f"measured here*: {GPU}, B=4")
    # The next one of the CPU does not come back into the table.
    edit(folder, GPU, CPU)
    publish.publish(folder, "The CPU again.")
    readme, named = results(copy)
    assert named == [gpu, "logs/2026-12-24-amd-epyc-2-threads-climb"]
    assert readme.count("| 12 causal blocks |") == 1 and len(readme.splitlines()) <= 200


def test_the_table_of_rungs_says_what_the_scripts_and_the_logs_say():
    head, _, *cells = cells_of((ROOT / "README.md").read_text(), "rung | the one change")
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
    assert [row[3] for row in cells[9:13]] == ["67", "60", "", ""]  # GB, as `ladder limits` has it
    here, other = (next(i for i, c in enumerate(head) if w in c) for w in ("here*", "elsewhere*"))
    assert [row[here] for row in cells[:4]] == ["–", "+10.1 %", "within noise", "+161.0 %"]
    assert [row[other] for row in cells[:4]] == ["1000 ms", "", "333 ms, +200 %", "300 ms, +11 %"]
    assert [row[other] for row in cells[10:]] == ["90 ms, +3 %", "", ""]
    assert "not ours: [Andrej Karpathy, one A100 80GB, B=16, T=1024](https://" in head[other]


def test_gains_of_the_table_of_rungs_are_over_the_rung_before_in_any_order_of_a_climb():
    facts, rows = read_climb(CLIMB)
    want = publish.rungs_table([("", rows)])
    rows = [rows[i] for i in (0, 3, 1, 2, *range(4, len(rows)))]
    compare(rows, kind_of(facts))
    assert publish.rungs_table([("", rows)]) == want


def test_machines_have_a_row_each_with_their_newest_climb(project):
    copy, folder = project
    edit(folder, CPU, "Apple M3 GPU")
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
    assert epyc.startswith(f"| {CPU}, B=4, T=256 | 2.13.0+cpu | 204 | 659 | 861 (12)")
    assert epyc.endswith(f"| 4.23× | [2026-11-21](logs/{CLIMB.name}) |")
    assert apple.startswith("| Apple M3 GPU, B=4, T=256 | 2.13.0+cpu | 204 | 659 | 659 (10) |")
    assert apple.endswith("| 3.24× | [2026-12-25](logs/a-newer-one) |")


def test_what_is_not_fit_is_not_published(project):
    """Nothing is left behind of it that would be "published already"."""
    copy, folder = project
    before, files = state(copy), [*folder.glob("*.log"), folder / "climb.json"]
    kept = [path.read_text() for path in files]
    for old, new, message in (
        ("34a7763c18e6", "34a7763c18e6-dirty", "commit, climb again"),
        ('"commit": "34a7763c18e6', '"commit": "306a0e4bd8ea', "climb.json is of '306a0e4bd8ea'"),
        (" model=gpt2 ", " model=tiny ", "only gpt2"),
        (" data=tinyshakespeare ", " data=python-docs ", "other text than tinyshakespeare"),
        ('"data": null', '"data": "/home/me/texts"', "other text than tinyshakespeare"),
        ('"after"', '"before"', "was stopped: finish it"),
        ('"cores"', '"quick": true, "cores"', "is a quick climb"),
        ('"kind": "climb"', '"kind": "x/../../../pwned"', "kind=.* is not as ladder climb"),
        ('"started": "2026-12-24', '"started": "../../../pwned', "started=.* is not as"),
        ('"device": "AMD', '"device": "AMD\\n<!-- end -->', r"climb.json is of 'AMD\\n<!-- end"),
        (" B=4 ", " ", "KeyError"),
        ('"warmup_steps": 2', '"warmup_steps": "2"', "TypeError"),
        ('"warmup_steps": 2', '"warmup_steps": 2.0', "TypeError"),
        ('"peak_bytes": ', '"peak_bytes": "1", "other": ', "TypeError"),
        ('"measured_steps": 5', '"measured_steps": 5.5.5', "is not a log of this ladder"),
        ("dt  ", "dt -", "makes no sense"),
        ("dt  ", "dt 9e99 ms | x ", "makes no sense"),
        (" 6922.03 ms", " nan ms", "makes no sense"),  # of a step of the warm-up
        ("loss 10.9", "loss 1e308 | x 1", "makes no sense"),
        ("run   script", "run   B=4\nrun   script", "line 2: 'run   script"),
        ("RESULT", 'RESULT {"status": "ok"}\nRESULT', "a second RESULT|line 12"),
        ('"status": "ok"', '"status": "interrupted"', "its run ended 'interrupted'"),
        ("step    4/7", "step    3/7", "its steps are not 1 to 7"),
        ("steps=7 ", "steps=9 ", "its steps are not 1 to 9"),
        (MEASURED, '"measured_steps": 4, "warmup_steps": 3', "warm-up"),
        ('"warmup_steps": 2', '"warmup_steps": null', "warm-up"),
        ('"final_loss": 8', '"final_loss": 2', "losses of RESULT are not those"),
        (" B=4 ", " total_batch=99999 B=4 ", "total_batch"),
        (" B=4 ", " B=64 ", "fewer scripts or rounds, or another B and T, than"),
        ('"--steps=7"', '"--steps=9"', "--steps=9, but its logs have 7"),
        ("torch=2.13.0+cpu", 'torch="2 | <!-- end --> <img src=x>"', "torch '2 .* not published"),
        ("2026-12-24", "9999-99-99", "does not match format"),
        ('"repeats": 3', '"repeats": 4', "asks for: 01_weight_tying.r4"),
        ('"failures": {', '"failures": {"02_tf32.r2": "it failed"', "asks for: 02_tf32.r2"),
        ('"scripts": [', '"scripts": ["baseline.py",', "there twice"),
        ('"scripts": [', '"scripts": ["<b>.py",', "<b>.*not the rung"),
        ('"speedups/12_causal', '"12_causal', "12_causal_blocks.*not the rung"),
        ('"failures": {}', '"failures": {"a.rX": "y"}', "failures=.* is not as ladder climb"),
        ('"kind": "climb"', '"kind": "ablate"', "the kind ablate, but not the scripts of one"),
        ('"kind": "climb"', '"kind": "peers"', "the kind peers, but not the scripts of one"),
        ('"cores"', '"at_most": "x", "cores"', "at_most='x' is not as ladder climb"),
    ):
        edit(folder, old, new)
        with pytest.raises(BadInput, match=message):
            publish.publish(folder, "No.")
        for path, text in zip(files, kept, strict=True):
            path.write_text(text)
    for text in ("[]", "{}", "null", "3"):
        files[-1].write_text(text)
        with pytest.raises(BadInput, match=r"climb\.json.* (ladder climb writes it|this ladder)"):
            publish.publish(folder, "No.")
    files[-1].write_text(kept[-1])
    for path in files[:-1]:
        path.unlink()
    change(folder, failures={"baseline.r1": "out of memory"})
    bare = CLIMB.with_name("2026-11-21-amd-epyc-2-cores-first")
    for path, message in ((folder, "all its runs failed"), (bare, "it has no climb.json")):
        with pytest.raises(BadInput, match=message):
            publish.publish(path, "No.")
    assert state(copy) == before and not (copy.parent / "pwned").exists()


def test_a_log_stands_for_the_script_and_round_of_its_name(project):
    copy, folder = project
    before, log = state(copy), (folder / "baseline.r1.log").read_text()
    other = (folder / "12_causal_blocks.r1.log").read_text()
    for name, text, message in (
        ("baseline.r1", other, r"baseline\.r1\.log, which is of another script"),
        ("baseline.r01", log, r"r01\.log is not a log of a climb"),
        ("baseline.r4", log, r"asks for: baseline\.r4"),
        ("mine.r1", log.replace("script=baseline", "script=mine"), r"asks for: mine\.r1"),
        ("12_causal_blocks.r1", None, r"asks for: 12_causal_blocks\.r1"),  # it never ran
    ):
        less = shutil.copytree(folder, folder.parent / "less")
        (less / f"{name}.log").write_text(text) if text else (less / f"{name}.log").unlink()
        with pytest.raises(BadInput, match=message):
            publish.publish(less, "No.")
        shutil.rmtree(less)
    assert state(copy) == before


def test_a_script_of_ones_own_is_not_taken_for_a_rung(project, tmp_path, no_peak, capsys):
    _, folder = project
    own = folder / "baseline.py"
    own.write_text("LR = 0.1\n")
    with pytest.raises(BadInput, match=r"baseline\.py, with the name of a rung"):
        publish.publish(folder, "No.")
    for command in "climb", "fit", "profile":
        assert main([command, str(own), "--out", str(tmp_path / "out")]) == 2
        assert "baseline.py has the name of a script of the ladder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    os.chdir(ROOT / "speedups")  # a rung by a path of another form is a rung
    try:
        assert select(["../baseline.py", "02_tf32.py"]) == [all_scripts()[0], all_scripts()[2]]
    finally:
        os.chdir(ROOT)


def test_one_publish_at_a_time(project, no_picture, monkeypatch, capsys):
    copy, folder = project
    with closing(lock(copy / "logs")):
        assert main(["publish", str(folder), "Both."]) == 2
    assert "is at work in" in capsys.readouterr().err
    target = copy / "logs" / "2026-12-24-amd-epyc-2-threads-climb"
    monkeypatch.setattr(publish, "new_target", lambda *_: target)
    target.mkdir()
    (target / "theirs").touch()  # whoever does not lock loses nothing
    assert main(["publish", str(folder), "Both."]) == 2
    assert (target / "theirs").exists()


def test_what_a_failure_says_stays_in_its_cell(project, no_picture):
    copy, folder = project
    for path in folder.glob("11_keep_memory.r*.log"):
        path.unlink()
    why = "a | b <script>\n| x <!-- end --> y"
    change(folder, failures={f"11_keep_memory.r{k}": why for k in (1, 2, 3)})
    publish.publish(folder, "It fails.", force=True)
    text = (copy / "README.md").read_text()
    assert r"failed: a \| b &lt;script> \| x &lt;!-- end --> y |" in text
    assert publish.render(text) == text


def test_two_steps_are_no_measurement(project):
    """And the caption, on the screen and on the page, says so."""
    _, folder = project
    for path in folder.glob("*.log"):
        text = re.sub(r"step    [3-7].*\n", "", path.read_text()).replace("steps=7", "steps=2")
        text = text.replace(MEASURED, '"measured_steps": 1, "warmup_steps": 1')
        loss = re.findall(r"loss ([\d.]+)", text)[-1]
        path.write_text(re.sub(r'"final_loss": [\d.]+', f'"final_loss": {loss}', text))
    change(folder, flags=["--steps=2"])
    with pytest.raises(BadInput, match="2 steps are no measurement"):
        publish.publish(folder, "No.", force=True)
    facts, rows = read_climb(folder)
    assert "not a measurement" in tables.caption(facts, rows)


def test_an_empty_finding_is_refused(project, capsys):
    _, folder = project
    for words in (["publish", str(folder), ""], ["publish", str(folder), "\u200b ."]):
        assert main(words) == 2
        assert "error the finding is empty" in capsys.readouterr().err
    for words in (["climb", "--publish", ""], ["climb", "--resume", "--publish", ""]):
        assert main(words) == 2
        assert "error the finding is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--model", "tiny"], "only gpt2 (124M) is published: leave out --model"),
        (["--data", "mine.txt"], "only tinyshakespeare is published"),
        (["--steps", "2"], "2 steps are no measurement"),
        (["--candidates", "20"], "low precision is not published"),
        ([], "only committed code is published"),
    ],
)
def test_what_cannot_be_published_is_not_climbed_first(words, why, monkeypatch, capsys):
    monkeypatch.setattr(climb, "commit", lambda: "0123456789ab" + "-dirty" * (not words))
    monkeypatch.setattr(climb, "new_folder", lambda *_: pytest.fail("it climbs"))
    assert main(["climb", *words, "--publish", "It is small."]) == 2
    assert f"error {why}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mine.py", "baseline.r1.log", "climb.json"])
def test_links_and_devices_are_not_followed(name, project):
    path = project[1] / name
    kept = path.rename(path.parent.parent / "kept")
    for make in (lambda path: path.symlink_to(kept), os.mkfifo):
        make(path)
        with pytest.raises(BadInput, match=f"{name} is not a regular file"):
            publish.fit(path.parent)
        path.unlink()


def test_what_fails_half_way_changes_nothing(project, no_picture, monkeypatch, capsys):
    copy, folder = project
    before = state(copy)

    def full(source, target):
        raise OSError(28, "No space left on device", "somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy", full)
        assert main(["publish", str(folder), "The disk is full."]) == 2
    assert main(["publish", str(folder), "It is \udcff"]) == 2
    full, odd = capsys.readouterr().err.splitlines()
    assert full == "error somewhere: No space left on device"
    assert odd == r"error the finding has a character that cannot be printed: 'It is \udcff'"
    assert state(copy) == before
    broken = (copy / "README.md").read_text() + "\n<!-- table logs/none -->\n<!-- end -->\n"
    (copy / "README.md").write_text(broken)
    before = state(copy)
    with pytest.raises(BadInput, match="holds no logs"):
        publish.publish(folder, "Another table cannot be made.")
    assert state(copy) == before


def fewer_rungs(folder):
    for path in [*folder.glob("0[2-9]_*"), *folder.glob("1[0-2]_*")]:
        path.unlink()
    change(folder, scripts=["baseline.py", "speedups/01_weight_tying.py"])


def other_size(folder):
    edit(folder, " B=4 T=256 ", " B=1 T=32 ")
    change(folder, flags=["--batch-size=1", "--seq-len=32"])


def fewer_rounds(folder):
    for path in folder.glob("*.r3.log"):
        path.unlink()
    change(folder, repeats=2)


def test_a_table_is_replaced_by_a_lesser_one_only_by_force(project, no_picture):
    """And a first one, of a GPU, has the ten rungs at the default B and T."""
    copy, folder = project
    before = state(copy)
    for worse, device, better in (
        (fewer_rungs, CPU, f"logs/{CLIMB.name}"),
        (other_size, CPU, f"logs/{CLIMB.name}"),
        (fewer_rungs, GPU, "the ten rungs by default"),
        (other_size, GPU, "the ten rungs by default"),
        (fewer_rounds, CPU, f"logs/{CLIMB.name}"),
    ):
        less = shutil.copytree(folder, folder.parent / "less")
        edit(less, CPU, device)
        worse(less)
        message = f"fewer scripts or rounds, or another B and T, than {better}: --force"
        with pytest.raises(BadInput, match=message):
            publish.publish(less, "Less.")
        shutil.rmtree(less)
    assert state(copy) == before
    fewer_rounds(folder)
    assert main(["publish", str(folder), "Less.", "--force"]) == 0
    assert results(copy)[1] == ["logs/2026-12-24-amd-epyc-2-threads-climb"]


def test_another_machine_gets_a_row_and_not_the_table(project, no_picture, capsys):
    copy, folder = project
    edit(folder, CPU, "Intel Xeon (8 threads)")
    publish.publish(folder, "Another machine.")
    assert "README.md's table stays that of another machine" in capsys.readouterr().out
    readme, named = results(copy)
    assert named == [f"logs/{CLIMB.name}"]
    assert readme.count("| Intel Xeon (8 threads), B=4, T=256 |") == 1


def test_climb_writes_what_publish_expects(tmp_path, no_peak):
    """A new key of climb.json that holds text needs a line in FACTS to be shared."""
    parser = argparse.ArgumentParser()
    climb.add_run_arguments(parser)
    args = parser.parse_args(["--out", str(tmp_path / "new"), "--steps", "4"])
    facts = read_facts(climb.new_folder(args, "climb", all_scripts()[:2]))
    assert json.loads(share.clean(tmp_path / "new")["climb.json"]) == facts


def test_the_headline_is_of_rungs_alone(project, no_picture):
    """Not of a script of one's own that was climbed after them, nor in the order of the climb."""
    copy, folder = project
    for path in folder.glob("12_causal_blocks.r*.log"):
        text = path.read_text().replace("speedups/12_causal_blocks", "mine")
        (folder / f"mine.{path.name.partition('.')[2]}").write_text(text)
    names = read_facts(folder)["scripts"]
    change(folder, scripts=[*names[:-2], names[-1], names[-2], "mine.py"])
    publish.publish(folder, "Mine is as fast.")
    words = "204 tokens per second; up to rung 10: 659, 3.2×; up to rung 12: 861, 4.2×"
    headline = (copy / "README.md").read_text().partition("<!-- headline -->\n")[2]
    assert headline.startswith(f"**{CPU}, a CPU: {words} (mean of 3 rounds)**")


def test_readme_begins_with_a_baseline_that_ran(project, no_picture):
    copy, folder = project
    before = (copy / "README.md").read_text()
    for path in folder.glob("baseline.r*.log"):
        path.unlink()
    change(folder, failures={f"baseline.r{k}": "out of memory" for k in (1, 2, 3)})
    publish.publish(folder, "It does not fit.", force=True)
    assert (copy / "README.md").read_text() == before


def test_a_log_that_contradicts_itself_is_not_published(project):
    """One log is enough; in climb.json rates are of such a size that the tables can hold them."""
    copy, folder = project
    before, log, facts = state(copy), folder / "12_causal_blocks.r2.log", folder / "climb.json"
    kept, known = log.read_text(), facts.read_text()
    for pattern, new, message in (
        (r'"first_step_ms": [\d.]+', '"first_step_ms": 1.0', "first step took another time than"),
        (" B=4 ", " B=4 B=8 ", "not a log of this ladder: line [12]: 'run"),
        (" B=4 ", " B=04 ", "makes no sense"),
        (r" script=\S+", "", "cannot stand in a table: KeyError.'script'"),
        (r" seed=\d+", "", "cannot stand in a table: KeyError.'seed'"),
        (r"\| dt ", "| dt 1.0 ms | dt ", "not a log of this ladder: line"),
        ('"status": "ok"', '"status": "ok", "status": "ok"', "not a log of this ladder: line"),
        (r'"peak_bytes": \d+', '"peak_bytes": true', "makes no sense"),
        (r'"peak_bytes": \d+', '"peak_bytes": 1e29', "makes no sense"),
        ("flops_per_token=\\d+", "flops_per_token=7", "flops_per_token that no GPT-2 124M has"),
        ("flops_per_token=\\d+", "flops_per_token=1500000000", "that no GPT-2 124M has"),
        ("peak_flops=unknown", "peak_flops=1e13", "peak of a GPU that is in no table"),
        (" data=", " seed2=\x1b[2J data=", "control characters"),
    ):
        text = re.sub(pattern, new, kept)
        assert text != kept
        log.write_text(text)
        with pytest.raises(BadInput, match=message):
            publish.publish(folder, "No.")
    log.write_text(kept)
    edit(folder, CPU, GPU)
    edit(folder, "peak_flops=unknown", "peak_flops=1e13")
    with pytest.raises(BadInput, match="in no table, or of another"):
        publish.publish(folder, "No.")
    edit(folder, "peak_flops=1e13", "peak_flops=9.89e+14")
    publish.fit(folder)
    edit(folder, "peak_flops=9.89e+14", "peak_flops=unknown")
    edit(folder, GPU, CPU)
    edit(folder, "data_sha256=86", "data_sha256=87")
    with pytest.raises(BadInput, match="other text than tinyshakespeare"):
        publish.publish(folder, "No.")
    edit(folder, "data_sha256=87", "data_sha256=86")
    for more in (
        {"copy_bytes_per_s": 1e10},
        {"copy_bytes_per_s": 1e10, "fp32_flops": None},
        {"copy_bytes_per_s": -1e10, "fp32_flops": 1e11},
        {"copy_bytes_per_s": 1e10, "fp32_flops": 1e-300},
        {"peak_flops": -1e12},
        {"peak_flops": 1e300},
        {"peak_flops": True},
        {"peaks": [-1, 2e12]},
        {"peaks": [int("9" * 90), "x"]},  # must not take for ever either
        {"minutes": None},
        {"load": "x"},
        {"precision": -1},
    ):
        facts.write_text(json.dumps({**json.loads(known), **more}))
        with pytest.raises(BadInput, match=r"is not as ladder climb|a matmul's rate is missing"):
            read_facts(folder)
    assert state(copy) == before


def test_a_rung_that_was_not_compiled_is_named_and_not_published(project):
    """As with TORCHDYNAMO_DISABLE=1. Rungs below 05 compile nothing, nor do peers."""
    folder = project[1]
    facts, rows = read_climb(folder)
    assert not tables.foot(facts, rows)
    edit(folder, "compiled=yes", "compiled=no")
    found = tables.foot(*read_climb(folder))
    assert [line.partition(":")[0].count(", ") for line in found] == [7], found
    assert found[0].startswith("Nothing was compiled in 05 torch.compile, 06 flash attention, ")
    with pytest.raises(BadInput, match="has 05_torch_compile, in which nothing was compiled"):
        publish.publish(folder, "No.")
    peers = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-peers"
    assert not tables.foot(*read_climb(peers))


@pytest.mark.parametrize("trouble", [PermissionError(1, "not permitted", "x"), KeyboardInterrupt()])
def test_both_pages_change_or_none(project, no_picture, monkeypatch, trouble):
    copy, folder = project
    runlog = copy / "RUNLOG.md"
    runlog.write_bytes(runlog.read_bytes() + b"\xff, by hand\n")  # is not lost for that
    before, replace, done = state(copy), os.replace, []

    def only_one(source, target):
        if done:
            done.clear()
            raise trouble
        done.append(target)
        replace(source, target)

    monkeypatch.setattr(publish.os, "replace", only_one)
    with pytest.raises(type(trouble)):
        publish.publish(folder, "Half.")
    assert state(copy) == before


def test_a_second_signal_does_not_stop_the_clean_up(project, monkeypatch):
    copy, folder = project
    before, rmtree = state(copy), shutil.rmtree

    def stopped(*_):
        signal.raise_signal(signal.SIGINT)

    def stopped_again(*words, **how):
        stopped()
        rmtree(*words, **how)

    monkeypatch.setattr(picture, "draw", stopped)
    monkeypatch.setattr(publish.shutil, "rmtree", stopped_again)
    assert main(["publish", str(folder), "Half."]) == 130
    assert state(copy) == before


def test_a_finding_has_no_control_characters(project, capsys):
    assert main(["publish", str(project[1]), "a\x1b[2J"]) == 2
    assert "has a character that cannot be printed: 'a\\x1b[2J'" in capsys.readouterr().err


def test_files_too_large_to_be_ours_are_not_read(project, capsys):
    for name in ("baseline.r1.log", "climb.json", "mine.py"):
        os.truncate(project[1] / name, 10**12)  # it takes no room
        for command in (["publish", str(project[1]), "No."], ["report", str(project[1])]):
            assert main(command) == 2
            assert f"{name} is too large: over" in capsys.readouterr().err
