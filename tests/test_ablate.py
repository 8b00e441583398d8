"""`ladder ablate`: single optimisations taken back from the top script."""

import pytest
from conftest import SMALL, load, rung
from test_climb import ladder

from ladder.commands.ablate import write_without
from ladder.commands.results import read_climb
from ladder.commands.scripts import all_scripts


@pytest.mark.parametrize(
    ("number", "gone", "kept"),
    [
        (1, "self.lm_head.weight = ", "torch.compile"),
        (2, "set_float32_matmul_precision", "require_bf16"),
        (3, "autocast", "set_float32_matmul_precision"),
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
    path = write_without(number, tmp_path)
    source = path.read_text().partition("\n")[2]
    assert gone not in source and kept in source
    others = {n for n in range(1, len(all_scripts())) if n != number}
    for n in others:
        assert f"# speedup {n:02d}: " in source, f"rung {n} went along"
    assert f"# speedup {number:02d}: " not in source
    load(path)


def test_a_change_that_a_later_rung_replaced_is_named(tmp_path, capsys):
    """Rung 12 stands around flash attention."""
    assert write_without(6, tmp_path) is None
    assert "06_flash_attention cannot be taken back" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("x = f(2, c=3)\n", "x = f(1, c=3)\n"),  # another word of the same line
        ("x = f(2 * 9)\n", "x = f(1 * 9)\n"),
        ("x = f(3)\n", None),  # the same word
    ],
)
def test_a_word_that_a_later_rung_changed_is_named_and_left_out(
    top, expected, tmp_path, capsys, monkeypatch
):
    scripts = []
    for stem, code in (("before", "x = f(1)\n"), ("rung", "x = f(2)\n"), ("top", top)):
        scripts.append(tmp_path / f"{stem}.py")
        scripts[-1].write_text(f'"""{stem}"""\n{code}')
    monkeypatch.setattr("ladder.commands.ablate.all_scripts", lambda: scripts)
    path = write_without(1, tmp_path)
    said = capsys.readouterr().out
    if expected is None:
        assert path is None and "rung cannot be taken back" in said
    else:
        assert path.read_text().endswith('"""\n' + expected) and not said


def test_a_merge_that_is_no_python_is_left_out(tmp_path, capsys, monkeypatch):
    scripts = []
    codes = {
        "before": "y = 1\n",
        "rung": "if a:\n    y = 1\n",
        "top": "if a:\n    y = 1\n    z = 2\n",
    }
    for stem, code in codes.items():
        scripts.append(tmp_path / f"{stem}.py")
        scripts[-1].write_text(f'"""{stem}"""\n{code}')
    monkeypatch.setattr("ladder.commands.ablate.all_scripts", lambda: scripts)
    assert write_without(1, tmp_path) is None
    assert "cannot be taken back" in capsys.readouterr().out


def test_ablate_as_a_user_runs_it(shard, tmp_path):
    folder = tmp_path / "run"
    words = [*SMALL, "--steps", 4, "--repeats", 2, "--data", shard, "--out", folder]
    done = ladder("ablate", 5, *words)
    assert done.returncode == 0, done.stderr
    _, (top, without) = read_climb(folder)
    assert top.stem == rung(-1).stem and without.stem == "without_05_torch_compile"
    compiled = [row.logs[1].effective["compiled"] for row in (top, without)]
    assert compiled == ["yes", "no"]
    assert top.gain is None and without.gain is not None
    assert (folder / "without_05_torch_compile.py").exists()
