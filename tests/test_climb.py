"""`ladder climb` from its command line to its folder, and the `ladder` command itself."""

import argparse
import contextlib
import io
import json
import os
import re
import signal

import pytest
from conftest import ROOT, SMALL, SMALLER, rung

from ladder.commands import COMMANDS, climb, main, process, program, scripts
from ladder.commands.results import read_climb
from ladder.commands.tables import cells

FOUND = {"peak_flops": 1e12, "peak_dtype": "bfloat16", "clocks": "2600 MHz", "device": "a CPU"}


@pytest.fixture(scope="module")
def climbed(shard, tmp_path_factory):
    """A climb of rung 1, its copy `mine`, and scripts that crash and that write no log; its output.

    Both models are small."""
    folder = tmp_path_factory.mktemp("climb")
    small = rung(1).read_text().replace("**MODELS[args.model]", f"**{SMALLER}")
    sources = {
        "mine": small,
        "crash": "raise ValueError('no [batch, time] in [/data]')",  # to rich this is markup
        "silent": "from ladder.files import ROOT\nprint(ROOT)",
    }
    own = [folder / f"{stem}.py" for stem in sources]
    for path in own:
        path.write_text(sources[path.stem])
    words = ["climb", "1", *own, *SMALL, "--steps", 3, "--repeats", 2, "--data", shard]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        peaks = {(): 1e12, ("--again",): 2e12}  # in round 1 and 2
        patch.setattr(climb, "large_matmul", lambda _, *w: FOUND | {"peak_flops": peaks[w]})
        patch.setattr(climb.machine, "load", lambda: 999)
        assert main([*map(str, words), "--out", str(folder / "run")]) == 0
    return folder / "run", out.getvalue()


def test_a_climb_leaves_logs_facts_code_and_picture(climbed):
    folder, _ = climbed
    stems = ("01_weight_tying", "mine")
    left = {path.stem for path in folder.glob("*.log")}
    assert left == {f"{stem}.r{k}" for stem in stems for k in (1, 2)}
    facts, (_, mine, *_) = read_climb(folder)
    assert facts["scripts"] == ["speedups/01_weight_tying.py", "mine.py", "crash.py", "silent.py"]
    assert facts["flags"][:2] == ["--model=tiny", "--steps=3"] and facts["peaks"] == [1e12, 2e12]
    assert facts["versions"]["torch"] and facts["clocks"]["after"] and facts["minutes"] > 0
    assert (folder / "code" / "COMMIT").read_text().strip() == facts["commit"]
    assert mine.log.run["commit"] == facts["commit"] and mine.log.run["script"] == "mine.py"
    assert cells(mine)["rung"] == "mine"
    assert not (folder / "code" / "ladder" / "commands").exists()
    assert (folder / "climb.png").read_bytes().startswith(b"\x89PNG")


def test_each_run_is_announced_and_every_second_round_is_backwards(climbed):
    lines = climbed[1].splitlines()
    begun = [re.fullmatch(r"(\w+), round (\d) of 2, running since \d\d:\d\d", x) for x in lines]
    names = ["01_weight_tying", "mine", "crash", "silent"]
    order = [*((name, "1") for name in names), *((name, "2") for name in names[::-1])]
    assert [match.groups() for match in begun if match] == order
    rate = read_climb(climbed[0])[1][0].logs[1].result["tok_per_s"]
    done = rf"01_weight_tying, round 1 of 2: {rate:.0f} tok/s \(1 of 8 runs, about \d+ min left\)"
    assert any(re.fullmatch(done, line) for line in lines)
    assert "round 2: it runs at 2 TFLOP/s" in lines and climbed[1].count(" rung ") == 2
    assert climbed[1].count("note  load 999.0 on ") == 1  # once


def test_a_script_that_fails_is_named_and_the_others_go_on(climbed):
    folder, out = climbed
    _, (tying, mine, crash, silent) = read_climb(folder)
    assert len(tying.logs) == len(mine.logs) == 2
    assert "\ncrash failed: ValueError: no [batch, time] in [/data]\n" in out
    assert crash.failure == "ValueError: no [batch, time] in [/data]" and crash.gain is None
    assert silent.failure == "it wrote no log to --log-dir"
    assert "silent, round 2 of 2: failed: it wrote no log to --log-dir (5 of 8 runs" in out
    assert "Traceback" in (folder / "crash.r1.failed").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["climb", "99"], "there is no rung 99: they go from 0 to"),
        (["climb", "no_such.py"], "neither a rung (its number or a part of its name) nor a script"),
        (["climb", "--resume"], "there is no climb under runs/ that was stopped"),
        (["climb", "1", "--resume", "--seed", "0"], "give no rungs, seed with it"),
        (["climb", "0", "--seq-len", "1025"], "--seq-len 1025 is longer than GPT-2's 1024"),
        (["climb", "0", "--batch-size", "9999"], "corpus tinyshakespeare has 338025 tokens, but"),
        (["climb", "0", "--at-most", "abc"], "--at-most: expected a number above 0, got 'abc'"),
        (["climb", "0", "--out", "/"], "/ is there already: choose another --out"),
        (["climb", "--publish", "..."], "the finding is empty"),
        (["climb", "0", "--publish", "Fast."], "only committed code is published, not 0-dirty"),
        (["ablate", "0"], "baseline cannot be taken back: only rungs 1 to"),
        (["climbs"], "there is no command climbs: expected climb, diff"),
    ],
)
def test_mistakes_of_users_get_one_line_and_leave_nothing_behind(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(climb, "commit", lambda: "0-dirty")
    try:
        status = main(words)
    except SystemExit as stop:  # of a script's command line
        status = stop.code
    *notes, line = capsys.readouterr().err.splitlines()
    assert status == 2 and message in line and all(note.startswith("note ") for note in notes)
    assert not list(tmp_path.iterdir())


def test_a_name_that_another_script_has_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(climb, "run_and_report", lambda folder: 0)
    monkeypatch.setattr(climb, "large_matmul", lambda *_: FOUND.copy())
    for name in ("a/mine.py", "b/mine.py", "b/05_torch_compile.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for names in (["a/mine.py", "b/mine.py"], ["b/05_torch_compile.py"]):
        assert main(["climb", *(str(tmp_path / name) for name in names)]) == 2
        assert "another script has this file name too: rename yours" in capsys.readouterr().err
    assert main(["climb", "10-12", "12", "--out", str(tmp_path / "out")]) == 0  # 12 counts once
    named = [rung(number).relative_to(ROOT).as_posix() for number in (10, 11, 12)]
    assert json.loads((tmp_path / "out" / "climb.json").read_text())["scripts"] == named


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_climbed_without_numbers(device, tmp_path, monkeypatch, capsys):
    given = {}
    monkeypatch.setattr(climb.cli, "pick_device", lambda _: argparse.Namespace(type=device))
    monkeypatch.setattr(
        climb, "new_folder", lambda args, _, chosen: given.update(args=args, all=chosen)
    )
    monkeypatch.setattr(climb, "run_and_report", lambda _: 0)
    assert main(["climb"]) == 0
    numbers = [scripts.number_of(path) for path in given["all"]]
    assert numbers == list(range(13 if device == "cpu" else 11))
    note = "note  11_keep_memory and 12_causal_blocks change nothing on a GPU and are left out"
    assert (note in capsys.readouterr().out) == (device == "cuda")
    assert main(["climb", "--quick"]) == 0
    assert {*map(scripts.number_of, given["all"])} == {*range(6), 10, 12 if device == "cpu" else 10}
    asked = given["args"].steps, given["args"].repeats, given["args"].at_most
    assert asked == ((4, 1, 5) if device == "cpu" else (12, 3, 5))


def test_the_command_alone_lists_its_commands_and_names_its_version(capsys):
    assert main([]) == main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(told.count(f"\n  {name} ") == 2 for name in COMMANDS)
    assert main(["--version"]) == 0
    assert re.fullmatch(rf"ladder \d+\.\d+\.\d+, commit \S+, in {ROOT}\n", capsys.readouterr().out)


def test_in_another_clone_than_its_own_it_refuses(tmp_path, monkeypatch, capsys):
    (tmp_path / "ladder" / "commands").mkdir(parents=True)
    (tmp_path / "baseline.py").touch()
    (tmp_path / "speedups").mkdir()
    monkeypatch.chdir(tmp_path / "speedups")
    assert main(["diff", "5"]) == 2
    line = capsys.readouterr().err
    assert f"you are in {tmp_path}, but this `ladder` is that of {ROOT}: `python -m ladder`" in line


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_has_its_status_and_a_second_one_does_not_disturb_the_ending(name, status):
    number, ended = signal.Signals[name], []

    def work():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            ended.append(True)

    assert program(work) == status and ended


def test_while_another_process_runs_this_one_sleeps():
    before = os.times()
    assert process.run_python("-c", "import time; time.sleep(2)").failure is None
    after = os.times()
    used = after.user + after.system - before.user - before.system
    assert used < 0.005 * (after.elapsed - before.elapsed) + 0.02  # and once to start it


def test_the_answer_of_a_process_is_found_among_what_libraries_print():
    """As with ONEDNN_VERBOSE=1."""
    told = 'onednn_verbose,v1,info\n[W] slow\n\n{"a": 1}\n[W] bye\n3\n'
    assert process.Finished(told, "", 0, None).answer() == {"a": 1}
    with pytest.raises(climb.BadInput, match="it broke"):
        process.Finished(told, "", 1, "it broke").answer()
