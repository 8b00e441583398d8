"""`ladder climb`, from its command line to its folder."""

import contextlib
import io
import re
from itertools import count
from types import SimpleNamespace

import pytest
from climbs import FOUND
from helpers import SMALL, SMALLER, refused, rung

from ladder import machine
from ladder.commands import climb
from ladder.commands.main import main
from ladder.files import ROOT
from ladder.measure import rounds
from ladder.measure.climb import Climb
from ladder.measure.rows import ms_per_token, read_climb


@pytest.fixture(scope="module")
def climbed(shard, tmp_path_factory):
    """A climb of rung 1 and its copy `mine`, whose model is small; and its output."""
    folder = tmp_path_factory.mktemp("climb")
    mine = folder / "mine.py"
    mine.write_text(rung(1).read_text().replace("**MODELS[args.model]", f"**{SMALLER}"))
    words = ["climb", 1, mine, *SMALL, "--steps=3", "--rounds=2"]
    words += ["--data", shard, "--out", folder / "run"]
    # In round 1, and in round 2 by the copy of the code.
    peaks = {ROOT: 1e12, folder / "run" / "code": 2e12}

    def rates(_, package=ROOT):
        return FOUND | {"rates": {"peak_flops": peaks[package]}}

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(rounds, "large_matmul", rates)
        patch.setattr(machine, "load_average", lambda: 999)
        patch.setattr(machine, "cpu_seconds_of_others", count(step=10**6).__next__)
        assert main([str(word) for word in words]) == 0
    return folder / "run", out.getvalue()


def test_a_climb_leaves_logs_its_json_and_code(climbed):
    folder, _ = climbed
    climb, (_, mine) = read_climb(folder)
    assert climb.scripts == ["speedups/01_weight_tying.py", "mine.py"]
    assert climb.rates["peak_flops"] == [1e12, 2e12]
    assert climb.ended and climb.minutes > 0
    assert (folder / "code" / "COMMIT").read_text().strip() == climb.commit
    assert mine.log.run["commit"] == climb.commit and mine.log.run["script"] == "mine.py"
    assert (folder / "code" / "ladder" / "measure" / "matmul.py").exists()


def test_each_run_has_one_line_and_every_second_round_is_backwards(climbed):
    folder, out = climbed
    begun = re.findall(r"^(\w+), round (\d) of 2: ", out, re.M)
    tying = "01_weight_tying"
    assert begun == [(tying, "1"), ("mine", "1"), ("mine", "2"), (tying, "2")]
    rate = 1e3 / ms_per_token(read_climb(folder)[1][0].logs[1])  # RESULT has other digits
    assert f"\n01_weight_tying, round 1 of 2: {rate:.0f} tok/s (1 of 4 runs)\n" in out
    assert out.count("note  load 999.0 on ") == 1  # as it begins, and below the table
    assert out.count("Before the climb: load 999.0 on ") == 1
    assert out.count("Other programs took up to ") == 1


def test_a_climb_begins_with_one_batch_for_all_and_says_what_it_lacks(
    card, shard, tmp_path, monkeypatch, capsys
):
    """The default B of a GPU depends on what other programs hold of it, which may change."""
    card("T4")
    monkeypatch.setattr(rounds, "large_matmul", lambda *_: FOUND)
    monkeypatch.setattr(machine, "unseen_gpu", lambda: "a GPU that is not seen")
    monkeypatch.setattr(climb, "run_and_report", lambda folder: 0)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    out = tmp_path / "run"
    assert main(["climb", "0", "1", f"--data={shard}", f"--out={out}"]) == 0
    assert Climb.read_from(out).flags == ["--batch-size=4"]
    said = capsys.readouterr().out
    assert "note  commit=unknown (fatal: detected dubious ownership" in said
    assert "): the climb cannot be published\n" in said
    assert "note  a GPU that is not seen\n" in said


@pytest.mark.parametrize("name", ["my script.py", "my", ".hidden.py", "my\nscript.py"])
def test_a_name_that_climb_json_may_not_have_is_refused(name, tmp_path, capsys):
    """A blank would end the header of its logs."""
    path = tmp_path / name
    path.touch()
    line = refused(capsys, "climb", path, "--out", tmp_path / "out")
    assert "the name of a script has letters, digits" in line and not (tmp_path / "out").exists()


def test_a_name_that_another_script_has_is_refused(tmp_path, capsys):
    path = tmp_path / "05_torch_compile.py"
    path.touch()
    said = "another script has this file name too: rename yours"
    assert said in refused(capsys, "climb", path)


@pytest.mark.parametrize(
    ("device", "count", "quick"), [("cpu", 13, (4, 1, 5)), ("cuda", 11, (12, 3, 5))]
)
def test_what_is_climbed_without_numbers(device, count, quick, monkeypatch):
    given = []
    monkeypatch.setattr(climb.cli, "pick_device", lambda _: SimpleNamespace(type=device))
    monkeypatch.setattr(climb, "begin_and_run", lambda *words: given.append(words))
    main(["climb"])
    main(["climb", "--quick"])
    (_, _, full), (args, _, some) = given
    assert len(full) == count
    assert {*some} == {*full[:6], full[10], full[-1]}
    assert (args.steps, args.rounds, args.max_minutes) == quick
