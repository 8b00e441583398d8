"""`ladder ablate`: single optimisations taken back from the top script."""

import pytest
from conftest import SMALL, load, rung

from ladder import files
from ladder.commands import ablate, main
from ladder.commands.diff import changed_lines, code_lines, parts_of
from ladder.commands.results import read_climb
from ladder.commands.scripts import all_scripts

TOP = all_scripts()[-1]


def taken_back(number):
    scripts = (rung(number - 1), rung(number), TOP)
    return ablate.without(*((path.stem, path.read_text()) for path in scripts))


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
    path.write_text(taken_back(number))
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
    top, without = ({*text.splitlines()[1:]} for text in (TOP.read_text(), taken_back(3)))
    came = {line.strip() for line in without - top}
    assert came == {"_, loss = model(x, y)", "loss.backward()", "optimizer.step()"}
    gone = [line for line in top - without if line in parts_of(TOP)[1].splitlines()]
    words = ("half_precision", "speedup 03", "scaler", "_, loss = model(x, y)")
    assert len(gone) == 10 and all(any(word in line for word in words) for line in gone)


@pytest.mark.parametrize(
    ("before", "rung", "top", "expected"),
    [
        ("x = f(1)\n", "x = f(2)\n", "x = f(2, c=3)\n", "x = f(1, c=3)\n"),  # another word of it
        ("x = f(1)\n", "x = f(2)\n", "x = f(2 * 9)\n", "x = f(1 * 9)\n"),
        ("x = f(1)\n", "x = f(2)\n", "x = f(3)\n", None),  # the same word
        ("y = 1\n", "if a:\n    y = 1\n", "if a:\n    y = 1\n    z = 2\n", None),  # no Python then
    ],
)
def test_words_that_a_later_rung_changed(before, rung, top, expected):
    found = ablate.without(("before", before), ("rung", rung), ("top", top))
    assert found == (expected and f'"""top without rung, made by ladder ablate."""\n{expected}')


def test_a_script_is_made_again_from_the_commit_that_its_logs_name(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / "speedups").mkdir()
    for name, code in (
        ("baseline", "x = 1"),
        ("speedups/01_a", "x = 2"),
        ("speedups/02_b", "x = 3"),
    ):
        (tmp_path / f"{name}.py").write_text(f'"""{name}"""\n{code}\n')
    files.git("init", "-q")
    files.git("add", "-A")
    files.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "all")
    commit = files.commit()
    (tmp_path / "speedups" / "01_a.py").write_text("what came later\n")
    made = ablate.source_at(commit, "without_02_b")
    assert made == '"""02_b without 02_b, made by ladder ablate."""\nx = 2\n'
    assert ablate.source_at(commit, "without_03_c") is None
    for unknown in ("unknown", f"{commit}-dirty", "0" * 12):
        assert ablate.source_at(unknown, "without_02_b") is None
    monkeypatch.setenv("PATH", "")  # no git
    assert ablate.source_at(commit, "without_02_b") is None


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
    assert (tmp_path / "run" / "without_05_torch_compile.py").exists()
