"""`ladder ablate`: single optimisations taken back from the top script."""

import pytest
from conftest import SMALL, changed_lines, code_lines, load, rung

from ladder.commands import ablate
from ladder.commands.main import main
from ladder.measure.rows import read_climb
from ladder.measure.scripts import all_scripts, parts_of

TOP = all_scripts()[-1]


@pytest.mark.parametrize(
    ("number", "gone", "kept"),
    [
        (1, "self.lm_head.weight = ", "torch.compile"),
        (2, "set_float32_matmul_precision", "half_precision"),
        (3, "autocast", "set_float32_matmul_precision"),
        (4, 'endswith("c_proj.weight")', "fused=True"),
        (5, "torch.compile", "fused=True"),
        (7, "50304", "scaled_dot_product_attention"),
        (8, "no_decay", "fused=True"),
        (9, "get_lr", "fused=True"),
        (10, "fused=True", "get_lr"),
        (11, "keep_memory", "causal_blocks"),
        (12, "causal_blocks", "keep_memory"),
    ],
)
def test_one_change_is_taken_back_and_the_rest_is_there(number, gone, kept, tmp_path):
    path = tmp_path / "without.py"
    path.write_text(ablate.without(rung(number - 1), rung(number), TOP))
    source = path.read_text().partition("\n")[2]
    assert gone not in source and kept in source
    for n in range(1, len(all_scripts())):
        assert (f"# speedup {n:02d}: " in source) == (n != number), n
    if number not in (3, 8, 9):  # of whose lines later rungs changed some
        one, before, top = map(code_lines, (rung(number), rung(number - 1), TOP))
        own, all_of_it = changed_lines(one, before), changed_lines(top, code_lines(path))
        assert sorted(all_of_it) == sorted(own)
    load(path)


def test_half_precision_goes_with_the_line_of_08_that_unscales():
    without = {*ablate.without(rung(2), rung(3), TOP).splitlines()[1:]}
    top = {*parts_of(TOP)[1].splitlines()}
    came = {line.strip() for line in without - top}
    assert came == {"_, loss = model(x, y)", "loss.backward()", "optimizer.step()"}
    words = ("half_precision", "speedup 03", "scaler", "_, loss = model(x, y)")
    assert len(top - without) == 10
    assert all(any(word in line for word in words) for line in top - without)


@pytest.mark.slow
def test_ablate_as_a_user_runs_it(shard, tmp_path, capsys):
    """Rung 06 cannot be taken back: rung 12 stands around flash attention."""
    words = ["ablate", 5, 6, *SMALL, "--steps", 3, "--repeats", 1, "--data", shard]
    assert main([*map(str, words), "--out", str(tmp_path / "run")]) == 0
    assert "06_flash_attention cannot be taken back" in capsys.readouterr().out
    _, (top, without) = read_climb(tmp_path / "run")
    assert top.stem == TOP.stem and without.stem == "without_05_torch_compile"
    compiled = [row.logs[1].effective["compiled"] for row in (top, without)]
    assert compiled == ["yes", "no"]
