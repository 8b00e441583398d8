"""`ladder climb`, from its command line to its folder, in each of its kinds."""

import contextlib
import io
import re
import sys
from argparse import ArgumentParser
from itertools import count
from pathlib import Path

import pytest
from climbs import FOUND, LOG
from helpers import SMALL, SMALLER, changed_lines, lines_of, load, refused, rung

from dev.climbs import full_table
from ladder.commands import climb
from ladder.commands.main import main
from ladder.measure import others, rounds
from ladder.measure.folder import Climb
from ladder.measure.rows import read_climb
from ladder.measure.scripts import base_of, branch, rungs_for
from ladder.measure.without import without

TOP = rungs_for("cpu")[-1]


@pytest.fixture(scope="module")
def climbed(shard, tmp_path_factory):
    """A climb of rung 1 and its copy `mine`, whose model is small; and its output."""
    folder = tmp_path_factory.mktemp("climb")
    mine = folder / "mine.py"
    mine.write_text(rung(1).read_text().replace("**MODELS[args.model]", f"**{SMALLER}"))
    words = ["climb", 1, mine, *SMALL, "--steps=3", "--rounds=2"]
    words += ["--data", shard, "--out", folder / "run"]
    peaks = iter([1e12, 2e12])

    def rates(_, package):
        assert package == folder / "run" / "code"
        return {"peak_flops": next(peaks)}

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(rounds, "large_matmul", rates)
        patch.setattr(others, "cpu_seconds_of_others", count(step=10**6).__next__)
        assert main([str(word) for word in words]) == 0
    return folder / "run", out.getvalue()


def test_a_climb_leaves_logs_its_json_and_code(climbed):
    """Each run has one line, and every second round is backwards."""
    folder, out = climbed
    climb, (_, mine) = read_climb(folder)
    assert climb.scripts == ["speedups/01_weight_tying.py", "mine.py"]
    assert climb.rates["peak_flops"] == [1e12, 2e12]
    assert climb.ended and climb.minutes > 0
    assert (folder / "code" / "COMMIT").read_text().strip() == climb.commit
    assert mine.log.run["commit"] == climb.commit and mine.log.run["script"] == "mine.py"
    begun = re.findall(r"^(\w+), round (\d) of 2: \d+ tok/s", out, re.M)
    tying = "01_weight_tying"
    assert begun == [(tying, "1"), ("mine", "1"), ("mine", "2"), (tying, "2")]
    assert "Other programs took up to " in out


def test_what_the_table_needs_is_asked_for_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    monkeypatch.setattr(climb, "go_on", pytest.fail)
    out = tmp_path / "run"
    line = refused(capsys, "climb", "0", "1", "--device=cpu", "--out", out)
    assert line.startswith("error SciPy does not import (") and not out.exists()


def test_a_climb_begins_with_one_batch_for_all(card, shard, tmp_path, monkeypatch):
    """The default B of a GPU depends on what other programs hold of it, which may change."""
    card("T4")
    monkeypatch.setattr(climb, "go_on", lambda *_: None)
    monkeypatch.setattr(climb, "report", lambda *_: 0)
    out = tmp_path / "run"
    words = ["climb", "0", "1", f"--data={shard}", f"--out={out}", "--steps=100", "--seed=7"]
    assert main(words) == 0
    found = Climb.read_from(out)
    flags = {"--model=gpt2", "--steps=100", "--batch-size=4", "--seq-len=1024", "--device=cuda"}
    assert set(found.flags) == flags
    assert (found.seed, found.shuffled) == (7, True)


def test_a_name_that_another_script_has_is_refused(tmp_path, capsys):
    path = tmp_path / "05_torch_compile.py"
    path.touch()
    line = refused(capsys, "climb", path, "--out", tmp_path / "out")
    assert "another script has this file name too" in line and not (tmp_path / "out").exists()


@pytest.fixture
def asked():
    """asked(device, *words): the kind of climb that `ladder climb` begins, and its scripts."""

    def ask(device, *words):
        parser = ArgumentParser()
        climb.add_arguments(parser)
        args = parser.parse_args(words)
        size = climb.QUICK[device] if args.quick else climb.USUAL
        kind, sources = climb.choose(args, size, device)
        return kind, [Path(name).stem for name in sources]

    return ask


def test_what_is_climbed_without_numbers(asked):
    """In five minutes a CPU that multiplies at half of ours' rate runs five rungs, not eight."""
    for device, rungs, quick in (("cpu", 13, [0, 1, 3, 5, 12]), ("cuda", 11, [*range(6), 10])):
        kind, full = asked(device)
        assert (kind, len(full)) == ("climb", rungs)
        assert asked(device, "--quick") == ("climb", [full[number] for number in quick])


def test_the_kind_of_a_climb(asked, monkeypatch):
    """Rung 06 cannot be taken back: rung 12 stands around flash attention."""
    monkeypatch.setattr(climb, "find_spec", lambda name: True)
    assert asked("cpu", "transformers", "0")[0] == "transformers"
    _, names = asked("cpu", "8-31")  # the rungs for CPUs are not between them
    assert [name[:2] for name in names] == ["08", "09", "10", "31"]
    kind, names = asked("cpu", "--without", "5", "6")
    assert (kind, names) == ("without", [TOP.stem, "without_05_torch_compile"])


# ------------------------------------------------------------------ --batch-sizes

# It leaves a log at the B of its command line, and fails above some B.
SCRIPT = """import os, sys
B = int(sys.argv[-3].removeprefix("--batch-size="))
assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(f"_B{{B}}")
if B > {largest}:
    {fail}
open(sys.argv[-1] + "/x.log", "w").write({text!r}.replace(" B=4 ", f" B={{B}} "))
"""
MEMORY = "raise SystemExit('error out of memory: try less')"
KILLED = "os.kill(os.getpid(), 9)"


def test_memory_ends_a_rung_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    """a runs up to B=2, b at 1 alone."""
    monkeypatch.setattr(rounds, "large_matmul", lambda *_: FOUND)
    for name, largest, fail in (("a", 2, MEMORY), ("b", 1, KILLED)):
        source = SCRIPT.format(largest=largest, fail=fail, text=LOG)
        (tmp_path / f"{name}.py").write_text(source)
    out = tmp_path / "out"
    scripts = sorted(map(str, tmp_path.glob("*.py")))
    words = f"--batch-sizes 4 1 2 8 --rounds=2 --out {out}"
    assert main(["climb", *scripts, *words.split()]) == 0
    said = capsys.readouterr().out
    begun = " ".join(re.findall(r"^(\w+), round", said, re.M))
    assert begun == "a_B1 a_B2 a_B4 b_B1 b_B2 b_B1 a_B2 a_B1"
    assert "b_B2, round 1 of 2: failed: out of memory (all of it: b_B2.r1.stderr) (5 of " in said
    assert main(["climb", "--resume", str(out)]) == 0  # nothing is due
    assert ", round " not in capsys.readouterr().out
    table = full_table(read_climb(out))
    assert "| b, B=2 | out\xa0of\xa0memory |" in table and "b, B=4" not in table


# ------------------------------------------------------------------ transformers


@pytest.mark.slow
def test_all_train_the_same_batches_each_in_its_own_way(shard, tmp_path):
    """The real command with the tiny model."""
    folder = tmp_path / "out"
    words = ["transformers", 0, 10, *SMALL, "--steps=3", "--rounds=1", "--data", shard]
    assert main(["climb", *map(str, words), "--out", str(folder)]) == 0
    # Which refuses logs that differ in B, T, steps, seed or corpus.
    _, (fast, plain, baseline, top) = read_climb(folder)
    assert fast.name == "transformers_compiled"
    assert fast.log.effective == top.log.effective
    assert plain.log.effective["compiled"] == baseline.log.effective["compiled"]
    flops = baseline.log.mfu["flops_per_token"]  # the untied head is counted once
    assert plain.log.mfu["flops_per_token"] == flops


# ------------------------------------------------------------------ --without


BEYOND = branch("beyond")
CASES = [(rung(number), TOP) for number in (*range(1, 6), *range(7, 13))]
CASES += [(path, BEYOND[-1]) for path in BEYOND]


@pytest.mark.parametrize(("path", "top"), CASES, ids=lambda path: path.stem)
def test_one_change_is_taken_back_and_the_rest_is_there(path, top, tmp_path):
    without_it = tmp_path / "without.py"
    without_it.write_text(without(base_of(path), path, top))
    load(without_it)
    for line in re.findall("# speedup [0-9]{2}: ", top.read_text()):
        assert (line in without_it.read_text()) == (path.stem[:2] not in line), line
    if path.stem[:2] not in ("03", "08", "09"):  # later rungs changed some
        own = changed_lines(lines_of(path), lines_of(base_of(path)))
        assert sorted(changed_lines(lines_of(top), lines_of(without_it))) == sorted(own)


def test_half_precision_goes_with_the_line_of_08_that_unscales():
    left = {*without(rung(2), rung(3), TOP).splitlines()}
    top = {*TOP.read_text().splitlines()}
    came = {line.strip() for line in left - top}
    step = {"loss = model(x, y)", "loss.backward()", "optimizer.step()"}
    assert came == step | {"run.header(model, batches)"}
