"""`ladder climb --without`: single optimisations taken back from the top script."""

import pytest
from helpers import SMALL, TINY, changed_lines, code_lines, load, random_batch, refused, rung

from ladder.commands.main import main
from ladder.measure.docstrings import parts_of
from ladder.measure.rows import read_climb
from ladder.measure.scripts import base_of, branch, rungs_for
from ladder.measure.without import without

TOP = rungs_for("cpu")[-1]


@pytest.mark.parametrize("number", [*range(1, 6), *range(7, 13)])
def test_one_change_is_taken_back_and_the_rest_is_there(number, tmp_path):
    before = rung(number - 1)
    after = rung(number)
    path = tmp_path / "without.py"
    path.write_text(without(before, after, TOP))
    for n in range(1, 13):
        assert (f"# speedup {n:02d}: " in path.read_text()) == (n != number), n
    if number not in (3, 8, 9):  # of whose lines later rungs changed some
        own = changed_lines(code_lines(after), code_lines(before))
        taken_back = changed_lines(code_lines(TOP), code_lines(path))
        assert sorted(taken_back) == sorted(own)
    load(path)


BEYOND = branch("beyond")


@pytest.mark.parametrize("path", BEYOND, ids=lambda path: path.stem)
def test_one_change_beyond_ten_is_taken_back(path, tmp_path):
    without_it = tmp_path / "without.py"
    without_it.write_text(without(base_of(path), path, BEYOND[-1]))
    for other in BEYOND:
        tag = f"# speedup {other.stem[:2]}: "
        assert (tag in without_it.read_text()) == (other != path), other
    module = load(without_it)
    module.get_lr(50, 100)  # has what it imports
    model = module.GPT(module.GPTConfig(**TINY))
    assert model(*random_batch())[1].item() == pytest.approx(10.8, abs=0.2)


def test_half_precision_goes_with_the_line_of_08_that_unscales():
    left = {*without(rung(2), rung(3), TOP).splitlines()[1:]}
    top = {*parts_of(TOP)[1].splitlines()}
    came = {line.strip() for line in left - top}
    assert came == {"_, loss = model(x, y)", "loss.backward()", "optimizer.step()"}


@pytest.mark.slow
def test_without_as_a_user_runs_it(shard, tmp_path, capsys):
    """Rung 06 cannot be taken back: rung 12 stands around flash attention."""
    words = ["climb", "--without", 5, 6, *SMALL, "--steps", 3, "--rounds", 1, "--data", shard]
    assert main([*map(str, words), "--out", str(tmp_path / "run")]) == 0
    assert "06_flash_attention cannot be left out" in capsys.readouterr().out
    top, other = read_climb(tmp_path / "run")[1]
    assert (top.name, top.log.effective["compiled"]) == (TOP.stem, "yes")
    assert other.name == "without_05_torch_compile"
    assert other.log.effective["compiled"] == "no"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--without", "0"], f"baseline cannot be left out: it is not below {TOP.stem} here"),
        (["--without", "6"], "none of these changes can be taken back"),
        (["3", "4", "--without"], "name one top rung before --without"),
        (
            ["25", "--without", "11"],
            "11_keep_memory cannot be left out: it is not below 25_muon",
        ),
        (["--without", "3", "--quick"], "--without goes with neither --quick nor --batch-sizes"),
    ],
)
def test_what_cannot_be_left_out_is_told_in_one_line(words, why, tmp_path, capsys):
    out = tmp_path / "run"
    line = refused(capsys, "climb", "--device=cpu", "--out", out, *words)
    assert why in line and not out.exists()
