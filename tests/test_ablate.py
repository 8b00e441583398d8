"""`ladder ablate`: single optimisations taken back from the top script."""

import pytest
from conftest import SMALL, load, rung
from test_climb import ladder

from ladder.ablate import write_without
from ladder.results import read_climb
from ladder.scripts import all_scripts


@pytest.mark.parametrize(
    ("number", "gone", "kept"),
    [
        (1, "self.lm_head.weight = ", "torch.compile"),
        (2, "set_float32_matmul_precision", "require_bf16"),
        (3, "autocast", "set_float32_matmul_precision"),
        (5, "torch.compile", "fused=True"),
        (6, "scaled_dot_product_attention", "50304"),
        (7, "50304", "scaled_dot_product_attention"),
        (10, "fused=True", "get_lr"),
    ],
)
def test_one_change_is_taken_back_and_the_rest_is_there(number, gone, kept, tmp_path):
    path = write_without(number, tmp_path)
    source = path.read_text().partition("\n")[2]
    assert gone not in source and kept in source
    others = {n for n in range(1, len(all_scripts())) if n != number}
    for n in others:
        assert f"# speedup {n:02d}: " in source, f"rung {n} went along"
    assert f"# speedup {number:02d}: " not in source
    load(path)


def test_a_change_that_others_built_on_is_named_and_left_out(tmp_path, capsys):
    assert write_without(9, tmp_path) is None
    assert "09_cosine_lr cannot be taken back" in capsys.readouterr().out


def test_ablate_as_a_user_runs_it(shard, tmp_path):
    folder = tmp_path / "run"
    words = [*SMALL, "--steps", 4, "--repeats", 2, "--data", shard, "--out", folder]
    done = ladder("ablate", 8, 10, *words)
    assert done.returncode == 0, done.stderr
    assert "08_adamw_clipping cannot be taken back" in done.stdout
    _, (top, without) = read_climb(folder)
    assert top.stem == rung(-1).stem and without.stem == "without_10_fused_adamw"
    assert top.logs[1].effective["optimizer"] == "fused"
    assert without.logs[1].effective["optimizer"] == "for-loop"
    assert top.gain is None and without.gain is not None
    assert (folder / "without_10_fused_adamw.py").exists()
