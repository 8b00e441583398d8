"""ladder diff, forward and doctor; forward in a copy of the scripts."""

import errno
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from ladder import files
from ladder.commands import diff, doctor, forward, main, scripts
from ladder.commands.diff import parts_of
from ladder.commands.forward import merge_code
from ladder.commands.process import Finished, run_python
from ladder.commands.scripts import ROOT, all_scripts, describe

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


def test_lines_are_counted_as_python_counts_them(ladder, project):
    """str.splitlines also splits at U+2028, which comes along with pasted text, and a form feed."""
    before = ladder("diff", 2, 3).stdout
    edit(project / NAMES[3], "Why:", "Why: \u2028\f\x85")
    assert ladder("diff", 2, 3).stdout == before
    refused(ladder("forward", 3), "has no uncommitted edit")


def test_code_on_the_last_line_of_a_docstring_is_not_lost():
    source = '"""doc"""; x = 1\n'
    assert scripts.split_source(source) == ("", source)


def test_a_rung_is_known_by_its_name(ladder):
    for name in ("06_flash_attention", "flash", "Flash attention", "flash-attention"):
        assert ladder("diff", name).stdout == ladder("diff", 6).stdout
    assert ladder("diff", "baseline", "loss_only").stdout == ladder("diff", 0, 13).stdout
    done = ladder("diff", "ddp").stdout
    assert done.startswith("DDP\n") and f"--- {NAMES[10]}\n+++ ddp_run.py\n" in done


def test_diff_colours_only_where_colours_are(ladder, monkeypatch):
    assert "\x1b" not in ladder("diff", 5).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32m+        model = torch.compile" in ladder("diff", 5).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in ladder("diff", 5).stdout


def test_diff_of_a_script_with_itself(ladder):
    assert ladder("diff", 3, 3).stdout == "the code of the two is the same\n"


# --------------------------------------------------------------------------------- forward


def test_forward_carries_an_edit_through_all_later_rungs(project, ladder):
    """The line stands right below one that rungs 08, 09 and 10 change."""
    before = texts()
    new = BATCHES.replace("\n", "  # in order\n") + "        assert B * T > 0\n"
    edit(all_scripts()[3], BATCHES, new)
    edit(all_scripts()[3], '"""03 bf16', '"""03 bfloat16')
    done = ladder("forward", 3)
    assert (done.status, done.stderr) == (0, "")
    by_hand = "ddp_run.py has this code too and was left alone: edit it by hand"
    assert done.stdout.splitlines() == [*(f"{name} changed" for name in NAMES[4:]), by_hand]
    after = texts()
    assert after[:3] == before[:3]
    assert after[4:] == [source.replace(BATCHES, new) for source in before[4:]]
    again = ladder("forward", "bf16")
    assert again.status == 0 and again.stdout.count("has it already") == len(before) - 4
    assert texts() == after
    edit(all_scripts()[3], "import time\n", "import time\nimport types\n")
    assert ladder("forward", 3).status == 0
    assert all("import time\nimport types\n" in source for source in texts()[3:])


def test_forward_writes_every_script_before_it_prints(project, ladder, monkeypatch):
    """Else with `| head -1` the later ones stay old."""

    def closed(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(forward, "print", closed, raising=False)
    edit(all_scripts()[3], BATCHES, BATCHES * 2)
    assert ladder("forward", 3).status == 130
    assert [source.count(BATCHES) for source in texts()] == [1] * 3 + [2] * (len(STEMS) - 3)


@pytest.mark.parametrize("words", [("diff", 5), ("limits",)])
def test_a_closed_pipe_is_no_result(ladder, monkeypatch, words):
    def closed(_):
        raise BrokenPipeError

    monkeypatch.setattr("rich.console.Console._write_buffer", closed)
    assert ladder(*words).status == 130


def test_forward_on_a_full_disk_cuts_no_script(project, ladder, monkeypatch):
    """It is rendered beside its place: opening the script itself to write would have emptied it."""
    edit(all_scripts()[3], BATCHES, BATCHES * 2)
    before = texts()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(ladder("forward", 3), "No space left on device")
    assert texts() == before


def test_forward_marks_and_names_a_conflict(project, ladder):
    before = texts()
    edit(all_scripts()[5], "lr=LEARNING_RATE", "lr=LEARNING_RATE, foreach=True")
    done = ladder("forward", 5)
    assert (done.status, done.stderr) == (1, "")
    after = texts()
    assert after[:5] == before[:5]
    assert [source.count("foreach=True") for source in after[5:8]] == [1, 1, 1]
    for name, old, new in list(zip(NAMES, before, after, strict=True))[8:]:
        number = new.splitlines().index("<<<<<<< this script") + 1
        assert f"{name}:{number} conflict" in done.stdout
        ours = re.sub(r"<<<<<<< .*\n((?:.*\n)*?)=======\n(?:.*\n)*?>>>>>>> .*\n", r"\1", new)
        assert ours == old
    assert done.stdout.count("conflict") == len(before) - 8
    need = f"{len(before) - 8} of {len(before) - 6} scripts need a hand: there keep what"
    assert need in done.stdout and "ddp_run.py has this code too" in done.stdout
    refused(ladder("forward", 5), r"speedups/08_\w+.py:\d+ is not valid Python")
    assert texts() == after


def test_forward_needs_a_committed_rung_that_is_python(project, ladder):
    mended = all_scripts()[3].read_text()
    all_scripts()[3].write_text(f"{mended}\n)\n")
    git(project, "commit", "-qam", "broken")
    all_scripts()[3].write_text(mended)
    refused(ladder("forward", 3), "03_bf16_autocast.py as committed is not valid Python: commit")


def test_forward_names_a_merge_that_is_no_python(project, ladder):
    """No line collides, but what a later rung added to a block is now outside of it."""
    waiting = "        torch.accelerator.synchronize(device)\n"
    edit(all_scripts()[10], waiting, f"{waiting}        assert device\n")
    head = '    if device.type != "cpu":\n'
    edit(all_scripts()[9], head + waiting, waiting[4:])
    done = ladder("forward", 9)
    assert done.status == 1
    number = texts()[10].splitlines().index("        assert device") + 1
    assert f"speedups/10_fused_adamw.py:{number} merged, but not valid Python" in done.stdout


def test_forward_refuses(project, ladder, tmp_path, monkeypatch):
    edit(all_scripts()[3], '"""03 bf16', '"""03 bfloat16')
    refused(ladder("forward", 3), "03_bf16_autocast.py has no uncommitted edit")
    edit(all_scripts()[3], BATCHES, f"{BATCHES}\n")
    before = texts()
    refused(ladder("forward", len(before) - 1), "is the last rung")
    refused(ladder("forward", 99), "there is no rung 99")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        refused(ladder("forward", 3), "git is not installed")
    git(project, "rm", "-q", "--cached", "speedups/03_bf16_autocast.py")
    git(project, "commit", "-q", "-m", "not yet known")
    refused(ladder("forward", 3), "git knows no committed speedups/03_bf16")
    shutil.rmtree(project / ".git")
    refused(ladder("forward", 3), "git knows no committed .* not a git repository")
    assert texts() == before


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        ("A b c d", "a B c d", "A B c d"),  # neighbours
        ("a b new c d", "a c d", "a new c d"),  # put in beside a line that goes
        ("a b c D", "a b", None),  # changed, and gone
        ("a new b c d", "a other b c d", None),  # two at one place: which comes first?
        ("a new b c d", "a new b c d", "a new b c d"),
        ("a X b c d", "X d", None),  # put in where a block was rewritten
        ("A B c d", "A b c d", "A B c d"),  # one side has the other's edit already
        ("", "a b c d", ""),
    ],
)
def test_merge_code(ours, theirs, merged):
    texts = ["".join(f"{word}\n" for word in side.split()) for side in ("a b c d", ours, theirs)]
    text, conflicts = merge_code(*texts)
    assert (conflicts == 0) == (merged is not None)
    assert ("<<<<<<< this script\n" in text) == (conflicts > 0)
    if merged is not None:
        assert text.split() == merged.split()


# ---------------------------------------------------------------------------------- doctor


CPU = torch.device("cpu")


def rows(done):
    """Cells of each row of the tables, by the first cell."""
    lines = (line.strip("│").split("│") for line in done.stdout.splitlines() if line[:1] == "│")
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def rungs(done):
    """The cells of every rung, in order."""
    return [rows(done)[scripts.title(path)] for path in all_scripts()]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_doctor_on_this_cpu(compiled, ladder, monkeypatch):
    if not compiled:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    done = ladder("doctor", "--device", "cpu")
    assert done.status == 0, done.stderr
    # A CUDA build of torch warns of a machine without a driver, and doctor of slow imports.
    known = ("No CUDA runtime", "note  importing")
    assert not [line for line in done.stderr.splitlines() if not any(k in line for k in known)]
    assert rows(done)["Python, torch"] == [f"{sys.version.split()[0]}, {torch.__version__}"]
    runs, helps, why = zip(*rungs(done), strict=True)
    assert set(runs) == {"yes"}
    assert [helps[n] for n in (0, 1, 5, 6, 10)] == ["–", *["yes"] * 4]
    assert [helps[n] for n in (4, 7, 8, 9)] == ["no", "unknown", "no", "no"]
    glibc = platform.libc_ver()[0] == "glibc"
    assert helps[11:13] == ("yes" if glibc else "no", "unknown")
    if "AMX" not in rows(done)["CPU, bfloat16"][0]:  # what AMX makes of TF32 differs
        assert (helps[2], why[2][:13]) == ("no", "no TF32 units")


@pytest.mark.parametrize(
    ("machine", "avx512", "arm", "said"),
    [
        ("x86_64", True, False, "AVX512_BF16"),
        ("AMD64", False, True, "no units, so it is emulated: here expect rungs from 03 on to be"),
        ("aarch64", True, True, "BF16"),
        ("aarch64", True, False, "no units"),
    ],
)
def test_doctor_says_whether_the_cpu_multiplies_bfloat16(machine, avx512, arm, said, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    onednn = SimpleNamespace(_is_mkldnn_bf16_supported=lambda: arm)
    monkeypatch.setattr(torch.ops, "mkldnn", onednn)
    assert dict(doctor.facts())["CPU, bfloat16"].startswith(said)


def test_doctor_says_that_half_precision_is_slower_where_it_is(monkeypatch):
    rates = {torch.float32: 3e11, torch.bfloat16: 1e11}
    monkeypatch.setattr(doctor, "matmul_flops", lambda _, dtype, n: rates[dtype])
    _, helps, why = doctor.judge("03_bf16_autocast", CPU)
    assert (helps, why) == ("no", "a bf16 matmul is slower than one in FP32 (timed)")


def test_doctor_has_an_entry_for_every_rung():
    assert list(doctor.TRIALS) == STEMS
    assert doctor.judge("99_new", CPU) == ("yes", "unknown", "not known to need anything")


def broken_loss(model):
    """As a compiler that makes the loss, and with it all gradients, 1.3 times too large."""
    return lambda x, y: (None, model(x, y)[1] * 1.3)


def broken_gradient(model):
    """As a compiler whose LayerNorm has a NaN in its backward, and a right loss."""
    model.transformer.ln_f.bias.register_hook(lambda grad: grad * torch.nan)
    return model


@pytest.mark.parametrize(("broken", "error"), [(broken_loss, "0.3"), (broken_gradient, "nan")])
@pytest.mark.usefixtures("ladder")  # the environment that doctor changes is put back
def test_doctor_finds_a_compiler_that_computes_something_else(monkeypatch, broken, error):
    monkeypatch.setattr(torch, "compile", broken)
    runs, helps, why = doctor.judge("05_torch_compile", CPU)
    assert (runs, helps) == ("no", "–") and f"(relative error {error})" in why


@pytest.mark.usefixtures("ladder")
def test_doctor_finds_that_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    runs, helps, why = doctor.judge("05_torch_compile", CPU)
    assert (runs, helps) == ("yes", "no") and why.startswith("nothing was compiled (tried)")


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
    assert "torch.compile found no working C++ compiler" in found[5][2]
    assert found[6] == ["no", "–", "the same is missing"]
    assert rows(done)["C++ compiler"] == ["missing: no /no/such"]
    unseen = "" if torch.cuda.is_available() else ", but this torch sees no GPU"
    assert rows(done)["NVIDIA driver"] == [f"599.01{unseen}"]


@pytest.mark.cuda
def test_doctor_on_cuda(ladder):
    done = ladder("doctor", "--device", "cuda")
    assert rungs(done)[2][0] == "yes" and rows(done)["GPU 0"]
    assert (done.status == 1) == any(cells[0] == "no" for cells in rungs(done))


# ------------------------------------------------------------------------------- strangers


def test_diff_of_scripts_that_a_stranger_wrote(ladder, tmp_path):
    """It ends, in one line if Python gives up, and no control character reaches the terminal."""
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text("'''\x1b]0;owned\x07'''\nx = \"\x1b[2J\"\n")
    b.write_text("if 1:\n\tx = 2\n")
    done = ladder("diff", a, b)
    assert '-x = "\\x1b[2J"\n' in done.stdout and "+       x = 2\n" in done.stdout
    for path, word in ((a, "here"), (b, "there")):  # it took a time that grows with the square
        path.write_text("x = 1\n" * 2_400 + f"{word} = 2\n" + "x = 1\n" * 2_400)
    assert "-here = 2\n" in ladder("diff", a, b).stdout
    for path, k in ((a, 1), (b, 2)):  # with the cube of it, or so
        path.write_text("".join(f"x{k * i % 101}\n" for i in range(3_000)))
    assert ladder("diff", a, b).stdout.splitlines()[2].startswith("not compared: so many lines")
    for deep in ("-" * 200_000 + "1", "1" + "+1" * 20_000):
        a.write_text(f"x = {deep}\n")
        refused(ladder("diff", a, b), "is not valid Python")


def test_an_unfinished_rung_is_named_in_one_line(ladder, project):
    path = project / "speedups" / "13_x.py"
    for source, said in (("def f(", "not valid Python"), ("x = 1", "its docstring has")):
        path.write_text(source)
        with pytest.raises(scripts.BadInput, match=rf"13_x\.py.*{said}"):
            describe(path)


def test_doctor_asks_rung_11_itself(monkeypatch):
    """glibc's mallopt says yes also where jemalloc has taken the place of its malloc."""
    keep = {"keep_memory": lambda say: say("note  this malloc cannot")}
    monkeypatch.setattr(runpy, "run_path", lambda path: keep)
    assert doctor.kept_memory(torch.device("cpu")) == ("no", "this malloc cannot (tried)")
