"""ladder diff, propagate and doctor; propagate in a copy of the scripts."""

import os
import re
import shutil
import subprocess
from functools import partial

import pytest
import torch
from conftest import SMALLER
from torch.nn import functional as F

from ladder import files
from ladder.cli import MODELS
from ladder.commands import diff, doctor
from ladder.commands.main import main
from ladder.commands.propagate import merge
from ladder.measure import scripts
from ladder.measure.process import Finished, run_python
from ladder.measure.scripts import ROOT, all_scripts, describe, parts_of

BATCHES = "        batches = Batches(load_corpus(args.data, run.say), B, T)\n"
STEMS = [path.stem for path in all_scripts()]
NAMES = ["baseline.py", *(f"speedups/{stem}.py" for stem in STEMS[1:])]


@pytest.fixture
def ladder(monkeypatch, capsys):
    """ladder(words…): exit status, stdout and stderr of the command, run in this process."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # doctor sets it: put back afterwards
    monkeypatch.chdir(ROOT)

    def run(*words):
        status = main([str(word) for word in words])
        return Finished(*capsys.readouterr(), status, failure=None)

    return run


def refused(done, words):
    """Assert that bad input was told in one line with status 2."""
    assert (done.status, done.stdout) == (2, "")
    assert re.fullmatch(rf"error .*{words}.*\n", done.stderr), done.stderr


def git(folder, *words):
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", "-C", folder, *me, *words], check=True, capture_output=True)


@pytest.fixture
def project(ladder, tmp_path, monkeypatch):
    """A copy of the scripts, committed to a git repository of its own; `ladder` runs there."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "speedups", folder / "speedups", ignore=lambda *_: ["__pycache__"])
    for name in ("baseline.py", "ddp_run.py"):
        shutil.copy(ROOT / name, folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "as it is")
    monkeypatch.chdir(folder)
    for module in (files, scripts, diff):
        monkeypatch.setattr(module, "ROOT", folder)
    return folder


def texts():
    return [path.read_text(encoding="utf-8") for path in all_scripts()]


def edit(path, old, new):
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1
    path.write_text(source.replace(old, new), encoding="utf-8")


# ------------------------------------------------------------------------------------ diff


def test_diff_shows_the_docstring_and_the_one_change(ladder):
    done = ladder("diff", 5)
    assert (done.status, done.stderr) == (0, "")
    fields = describe(all_scripts()[5])
    head, _, patch = done.stdout.partition("\n\n--- speedups/04_residual_scaling.py\n")
    head = " ".join(head.split())
    assert head.startswith(fields.pop("Title"))
    assert all(f"{name}: {text}" in head for name, text in fields.items())
    _, hunk, *lines = patch.splitlines()
    (changed,) = (line for line in lines if line[0] in "+-")
    assert changed.startswith("+        model = torch.compile(model)")
    # Lines are counted as in the whole files, docstrings included.
    starts = re.fullmatch(r"@@ -(\d+),6 \+(\d+),7 @@", hunk).groups()
    for start, path, other in zip(starts, all_scripts()[4:6], "+-", strict=True):
        side = [line[1:] for line in lines if line[0] != other]
        assert side == path.read_text().splitlines()[int(start) - 1 :][: len(side)]


def test_diff_of_any_two_is_a_patch_that_applies(ladder, project, monkeypatch):
    """Also on a narrow terminal, where no line may be wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    done = ladder("diff", "baseline.py", len(STEMS) - 1)
    assert done.status == 0 and "Change:" not in done.stdout
    patch = done.stdout.replace(f"+++ {NAMES[-1]}", "+++ baseline.py")
    (project / "change.patch").write_text(patch)
    git(project, "apply", "-p0", "change.patch")
    before, after = (parts_of(project / name)[1] for name in ("baseline.py", NAMES[-1]))
    assert before == after
    assert ladder("diff", 3, 3).stdout == "the code of the two is the same\n"


def test_a_rung_is_known_by_its_name(ladder):
    for name in ("06_flash_attention", "flash", "Flash attention", "flash-attention"):
        assert ladder("diff", name).stdout == ladder("diff", 6).stdout
    done = ladder("diff", "ddp").stdout
    assert done.startswith("DDP\n") and f"--- {NAMES[10]}\n+++ ddp_run.py\n" in done


# ------------------------------------------------------------------------------- propagate


def test_an_edit_is_applied_to_all_later_rungs(project, ladder):
    """The line stands right below one that rungs 08, 09 and 10 change."""
    before = texts()
    new = BATCHES.replace("\n", "  # in order\n") + "        assert B * T > 0\n"
    edit(all_scripts()[3], BATCHES, new)
    edit(all_scripts()[3], '"""03 bf16', '"""03 bfloat16')
    done = ladder("propagate", 3)
    assert (done.status, done.stderr) == (0, "")
    by_hand = "ddp_run.py has this code too and was left alone: edit it by hand"
    assert done.stdout.splitlines() == [*(f"{name} changed" for name in NAMES[4:]), by_hand]
    after = texts()
    assert after[:3] == before[:3]
    assert after[4:] == [source.replace(BATCHES, new) for source in before[4:]]
    again = ladder("propagate", "bf16")
    assert again.status == 0 and again.stdout.count("has it already") == len(before) - 4
    assert texts() == after


def test_words_of_a_line_that_later_rungs_changed_elsewhere_are_merged(project, ladder):
    before = texts()
    edit(all_scripts()[8], "eps=1e-8", "eps=1e-9")
    assert ladder("propagate", 8).status == 0
    assert texts() == before[:8] + [source.replace("eps=1e-8", "eps=1e-9") for source in before[8:]]


def test_a_conflict_stops_it_and_it_goes_on_from_there(project, ladder):
    before = texts()
    edit(all_scripts()[5], "lr=LEARNING_RATE)", "lr=LEARNING_RATE, foreach=True)")
    done = ladder("propagate", 5)
    after = texts()
    assert (done.status, done.stderr) == (1, "")
    assert [source.count("foreach=True") for source in after[5:9]] == [1, 1, 1, 1]
    assert after[:5] == before[:5] and after[9:] == before[9:]
    number = after[8].splitlines().index("<<<<<<< this script") + 1
    assert f"{NAMES[8]}:{number} conflict, marked there\n" in done.stdout
    assert "then go on from it: ladder propagate 08_adamw_clipping\n" in done.stdout
    assert "ddp_run.py has this code too" in done.stdout
    ours = re.compile(r"<<<<<<< .*\n((?:.*\n)*?)=======\n(?:.*\n)*?>>>>>>> .*\n")
    assert ours.sub(r"\1", after[8]) == before[8]
    refused(ladder("propagate", 8), rf"{NAMES[8]}:\d+ is not valid Python")
    assert texts() == after

    mended = before[8].replace("eps=1e-8)", "eps=1e-8, foreach=True)")
    all_scripts()[8].write_text(mended)
    done = ladder("propagate", "08_adamw_clipping")  # 10 puts something else in that place
    assert done.status == 1 and f"{NAMES[9]} changed" in done.stdout
    assert "ladder propagate 10_fused_adamw" in done.stdout
    all_scripts()[10].write_text(before[10].replace("fused=True)", "fused=True, foreach=True)"))
    assert ladder("propagate", 10).status == 0
    assert all("foreach=True)" in source for source in texts()[5:])


def test_what_propagate_refuses(project, ladder):
    edit(all_scripts()[3], '"""03 bf16', '"""03 bfloat16')
    refused(ladder("propagate", 3), "03_bf16_autocast.py has no uncommitted edit")
    edit(all_scripts()[3], BATCHES, f"{BATCHES}\n")
    before = texts()
    refused(ladder("propagate", len(before) - 1), "is the last rung")
    assert texts() == before


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        ("A b c d", "a B c d", "A B c d"),  # neighbours
        ("a b new c d", "a c d", "a new c d"),  # put in beside a line that goes
        ("a b c D", "a b", None),  # changed, and gone
        ("a new b c d", "a other b c d", None),  # two at one place: which comes first?
        ("a X b c d", "X d", None),  # put in where a block was rewritten
        ("A B c d", "A b c d", "A B c d"),  # one side has the other's edit already
        ("a(1,x) b c d", "a(2,y) b c d", None),
    ],
)
def test_merge(ours, theirs, merged):
    texts = ["".join(f"{word}\n" for word in side.split()) for side in ("a b c d", ours, theirs)]
    text = merge(*texts)
    assert ("<<<<<<< this script\n" in text) == (merged is None)
    assert merged is None or text.split() == merged.split()


# ---------------------------------------------------------------------------------- doctor


CPU = torch.device("cpu")


@pytest.fixture
def small(ladder, monkeypatch):
    for model in ("gpt2", "tiny"):
        monkeypatch.setitem(MODELS, model, SMALLER)


def rungs(done):
    """The cells of every rung, in order."""
    lines = (line.strip("│").split("│") for line in done.stdout.splitlines() if line[:1] == "│")
    found = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}
    return [found[scripts.title(path)] for path in all_scripts()]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_doctor_on_this_cpu(compiled, ladder, monkeypatch, request):
    if not compiled:
        request.getfixturevalue("small")
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(doctor, "load", lambda: 1e3)
    done = ladder("doctor", "--device", "cpu")
    assert done.status == 0, done.stdout
    machine, note, *_ = done.stdout.splitlines()
    assert f", torch {torch.__version__}, Python 3." in machine
    assert note.startswith("note  load 1000.0 on ")
    runs, helps, why = zip(*rungs(done), strict=True)
    assert set(runs) == {"yes"}
    assert [helps[n] for n in (1, 5, 6, 10)] == ["–", "yes", "no", "–"]
    assert why[6].startswith("the flash kernel runs, but at T=256 slower")


def test_doctor_names_the_attention_that_ran_and_not_one_it_asked_for(monkeypatch):
    attend = F.scaled_dot_product_attention

    def without_kernel(*args, **how):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return attend(*args, **how)

    monkeypatch.setattr(F, "scaled_dot_product_attention", without_kernel)
    assert doctor.judge("06_flash_attention", CPU)[1:][0] == "no"


def broken_loss(model):
    """As a compiler that makes the loss, and with it all gradients, 1.3 times too large."""
    return lambda x, y: (None, model(x, y)[1] * 1.3)


def broken_gradient(model):
    """As a compiler whose LayerNorm has a NaN in its backward, and a right loss."""
    model.transformer.ln_f.bias.register_hook(lambda grad: grad * torch.nan)
    return model


@pytest.mark.parametrize(("broken", "error"), [(broken_loss, "0.3"), (broken_gradient, "nan")])
def test_doctor_finds_a_compiler_that_computes_something_else(small, monkeypatch, broken, error):
    monkeypatch.setattr(torch, "compile", broken)
    runs, helps, why = doctor.judge("05_torch_compile", CPU)
    assert (runs, helps) == ("no", "–") and f"(relative error {error})" in why
    assert "CXX=clang++" in why


def test_doctor_says_that_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    assert doctor.judge("05_torch_compile", CPU)[:2] == ("yes", "no")


@pytest.mark.slow
def test_doctor_without_a_compiler_and_with_a_driver(tmp_path):
    """In a process of its own: torch looks for a compiler once."""
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 599.01\n")
    driver.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CXX": "/no/such"}
    done = run_python("-m", "ladder", "doctor", "--device", "cpu", COLUMNS="200", **env)
    assert done.status == 1
    found = rungs(done)
    assert [cells[0] for cells in found] == ["yes"] * 5 + ["no"] * (len(found) - 5)
    assert "torch.compile found no working compiler" in found[5][2]
    assert found[6] == ["no", "–", "the same is missing"]
    unseen = "note  there is an NVIDIA driver (599.01), but this torch sees no GPU\n"
    assert (unseen in done.stdout) != torch.cuda.is_available()


@pytest.mark.cuda
def test_doctor_on_cuda(ladder):
    done = ladder("doctor", "--device", "cuda")
    assert rungs(done)[2][0] == "yes"
    assert (done.status == 1) == any(cells[0] == "no" for cells in rungs(done))
