"""ladder diff, forward and doctor, run as a user runs them; forward in a copy of the project."""

import ast
import difflib
import os
import platform
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from ladder.commands import doctor
from ladder.commands.forward import merge_code
from ladder.commands.scripts import ROOT, all_scripts, describe, split_docstring
from ladder.errors import BadInput

BATCHES = "        batches = Batches(load_corpus(args.data, run.say), B, T)\n"


def ladder(*words, cwd=ROOT, **env):
    """The finished process of `python -m ladder WORDS`."""
    return subprocess.run(
        [sys.executable, "-m", "ladder", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd), "COLUMNS": "150", **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def refused(done, words):
    """Assert that bad input was told in one line with status 2."""
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"error .*{words}.*\n", done.stderr), done.stderr


def git(folder, *words):
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", "-C", folder, *me, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A copy of the scripts and of `ladder`, committed to a git repository of its own."""
    folder = tmp_path / "project"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("ladder", "speedups"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "baseline.py", folder)
    (folder / ".gitignore").write_text("__pycache__\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "as it is")
    return folder


def scripts(project):
    return [project / path.relative_to(ROOT) for path in all_scripts()]


def texts(project):
    return [path.read_text(encoding="utf-8") for path in scripts(project)]


def edit(path, old, new):
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1
    path.write_text(source.replace(old, new), encoding="utf-8")


# ------------------------------------------------------------------------------------ diff


def test_diff_shows_the_docstring_and_the_one_change():
    done = ladder("diff", 5)
    assert (done.returncode, done.stderr) == (0, "")
    fields = describe(all_scripts()[5])
    head, _, diff = done.stdout.partition("\n\n--- speedups/04_residual_scaling.py\n")
    head = " ".join(head.split())
    assert head.startswith(fields.pop("Title"))
    assert all(f"{name}: {text}" in head for name, text in fields.items())
    changed = [line for line in diff.splitlines()[1:] if line[0] in "+-"]
    assert len(changed) == 1 and changed[0].startswith("+        model = torch.compile(model)")


def test_diff_of_any_two_is_a_patch_that_applies(project):
    """Also on a narrow terminal, where no line may be wrapped."""
    last = all_scripts()[-1].relative_to(ROOT).as_posix()
    done = ladder("diff", "baseline.py", len(all_scripts()) - 1, cwd=project, COLUMNS="40")
    assert done.returncode == 0 and "Change:" not in done.stdout
    patch = project / "change.patch"
    patch.write_text(done.stdout.replace(f"+++ {last}", "+++ baseline.py"))
    git(project, "apply", "-p0", "change.patch")
    codes = [split_docstring(project / name)[1] for name in ("baseline.py", last)]
    assert codes[0] == codes[1]


@pytest.mark.parametrize("number", range(1, len(all_scripts())))
def test_diff_counts_lines_as_the_files_do(number):
    diff = ladder("diff", number - 1, number).stdout
    files = [path.read_text().splitlines() for path in all_scripts()[number - 1 : number + 1]]
    hunks = re.findall(r"^@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n((?:[ +-].*\n)+)", diff, re.MULTILINE)
    assert len(hunks) == diff.count("@@") / 2
    for *numbers, text in hunks:
        start, size, new_start, new_size = map(int, numbers)
        for lines, first, count, other in (
            (files[0], start, size, "+"),
            (files[1], new_start, new_size, "-"),
        ):
            side = [line[1:] for line in text.splitlines() if line[0] != other]
            assert side == lines[first - 1 : first - 1 + count]


def test_diff_colours_only_where_colours_are():
    assert "\x1b[32m+        model = torch.compile" in ladder("diff", 5, FORCE_COLOR="1").stdout
    assert "\x1b[3" not in ladder("diff", 5, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b" not in ladder("diff", 5).stdout


def test_diff_of_a_script_with_itself():
    done = ladder("diff", 3, 3)
    assert (done.returncode, done.stdout) == (0, "the code of the two is the same\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((0,), "rung 0 changes nothing"),
        ((99,), "there is no rung 99"),
        (("3-5",), "3-5 is several rungs"),
        ((1, 2, 3), "expected one or two rungs, got 3"),
        (("ladder/cli.py",), "ladder/cli.py is no rung of this ladder"),
        ((3, "pyproject.toml"), r"pyproject.toml:\d is no valid Python"),
        (("nothing.py", 3), "nothing.py is neither the number of a rung nor a script"),
    ],
)
def test_diff_refuses(words, told):
    refused(ladder("diff", *words), told)


# --------------------------------------------------------------------------------- forward


def test_forward_carries_an_edit_through_all_later_rungs(project):
    """The line stands right below one that rungs 08, 09 and 10 change."""
    before = texts(project)
    new = BATCHES.replace("\n", "  # in order\n") + "        assert B * T > 0\n"
    edit(scripts(project)[3], BATCHES, new)
    edit(scripts(project)[3], '"""03 bf16', '"""03 bfloat16')
    done = ladder("forward", 3, cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{path.relative_to(ROOT).as_posix()} changed" for path in all_scripts()[4:]
    ]
    after = texts(project)
    assert after[:3] == before[:3]
    assert after[4:] == [source.replace(BATCHES, new) for source in before[4:]]
    again = ladder("forward", "speedups/03_bf16_autocast.py", cwd=project)
    assert again.returncode == 0 and again.stdout.count("has it already") == len(before) - 4
    assert texts(project) == after
    edit(scripts(project)[3], "import time\n", "import time\nimport types\n")
    assert ladder("forward", 3, cwd=project).returncode == 0
    more = [source.replace("import time\n", "import time\nimport types\n") for source in after]
    assert texts(project)[3:] == more[3:]


def test_forward_marks_and_names_a_conflict(project):
    before = texts(project)
    edit(scripts(project)[5], "lr=LEARNING_RATE", "lr=LEARNING_RATE, foreach=True")
    done = ladder("forward", 5, cwd=project)
    assert (done.returncode, done.stderr) == (1, "")
    after = texts(project)
    assert after[:5] == before[:5]
    assert [source.count("foreach=True") for source in after[5:8]] == [1, 1, 1]
    for path, old, new in list(zip(all_scripts(), before, after, strict=True))[8:]:
        number = new.splitlines().index("<<<<<<< this script") + 1
        place = f"{path.relative_to(ROOT).as_posix()}:{number} conflict"
        assert place in done.stdout
        ours = re.sub(r"<<<<<<< .*\n((?:.*\n)*?)=======\n(?:.*\n)*?>>>>>>> .*\n", r"\1", new)
        assert ours == old
    assert done.stdout.count("conflict") == len(before) - 8
    assert f"{len(before) - 8} of {len(before) - 6} scripts need a hand" in done.stdout
    refused(ladder("forward", 5, cwd=project), r"speedups/08_\w+.py:\d+ is no valid Python")
    assert texts(project) == after


def test_forward_names_a_merge_that_is_no_python(project):
    """No line collides, but what a later rung added to a block is now outside of it."""
    waiting = "        torch.accelerator.synchronize(device)\n"
    edit(scripts(project)[10], waiting, f"{waiting}        assert device\n")
    head = '    if device.type != "cpu":\n'
    edit(scripts(project)[9], head + waiting, waiting[4:])
    done = ladder("forward", 9, cwd=project)
    assert done.returncode == 1
    number = texts(project)[10].splitlines().index("        assert device") + 1
    assert f"speedups/10_fused_adamw.py:{number} merged, but no valid Python" in done.stdout


def test_forward_without_an_edit(project):
    refused(ladder("forward", 3, cwd=project), "03_bf16_autocast.py has no uncommitted edit")
    edit(scripts(project)[3], '"""03 bf16', '"""03 bfloat16')
    refused(ladder("forward", 3, cwd=project), "03_bf16_autocast.py has no uncommitted edit")


def test_forward_refuses(project, tmp_path):
    edit(scripts(project)[3], BATCHES, f"{BATCHES}\n")
    before = texts(project)
    refused(ladder("forward", len(before) - 1, cwd=project), "is the last rung")
    refused(ladder("forward", 99, cwd=project), "there is no rung 99")
    refused(ladder("forward", 3, cwd=project, PATH=str(tmp_path)), "git is not installed")
    git(project, "rm", "-q", "--cached", "speedups/03_bf16_autocast.py")
    git(project, "commit", "-q", "-m", "not yet known")
    refused(ladder("forward", 3, cwd=project), "git knows no committed speedups/03_bf16")
    shutil.rmtree(project / ".git")
    refused(ladder("forward", 3, cwd=project), "git knows no committed .* not a git repository")
    assert texts(project) == before


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


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7, 10, 11, 12])
def test_merge_code_takes_a_change_back_from_the_top(number):
    """Exactly the rung's own changed lines go and come; no line of another rung does."""
    codes = [split_docstring(all_scripts()[n])[1] for n in (number, -1, number - 1)]
    code, conflicts = merge_code(*codes)
    assert conflicts == 0
    ast.parse(code)
    base, top, without = (source.splitlines() for source in codes)
    own = [line for line in difflib.ndiff(base, without) if line[0] in "+-"]
    assert sorted(line for line in difflib.ndiff(top, code.splitlines()) if line[0] in "+-") == (
        sorted(own)
    )


def test_merge_code_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="git is not installed"):
        merge_code("a\n", "a\n", "b\n")


# ---------------------------------------------------------------------------------- doctor


def rows(done):
    """Cells of each row of the tables, by the first cell."""
    lines = (line.strip("│").split("│") for line in done.stdout.splitlines() if line[0] == "│")
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_doctor_on_this_cpu():
    done = ladder("doctor", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    if torch.version.cuda is None:
        assert done.stderr == ""
    else:  # which warns of a machine without a driver
        assert all("No CUDA runtime" in line for line in done.stderr.splitlines()), done.stderr
    found = rows(done)
    assert found["Python, torch"] == [f"{sys.version.split()[0]}, {torch.__version__}"]
    titles = [describe(path)["Title"].partition(":")[0] for path in all_scripts()]
    assert {title: found[title][0] for title in titles} == dict.fromkeys(titles, "yes")
    helps = {title[:2]: found[title][1] for title in titles}
    assert [helps[number] for number in ("00", "01", "05", "06", "10")] == ["–", *["yes"] * 4]
    glibc = platform.libc_ver()[0] == "glibc"
    assert (helps["11"], helps["12"]) == ("yes" if glibc else "no", "unknown")
    assert [helps[number] for number in ("04", "07", "08", "09")] == ["no", "unknown", "no", "no"]
    if "amx_bf16: no" in found["CPU units"][0]:  # what AMX makes of TF32 differs by generation
        why = "no TF32 units: the setting changes no bit of a matmul"
        assert found["02 TF32"] == ["yes", "no", why]


def test_doctor_without_a_compiler_and_with_a_driver(tmp_path):
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 599.01\n")
    driver.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = ladder("doctor", "--device", "cpu", CXX="/no/such", PATH=path)
    assert done.returncode == 1
    found = rows(done)
    runs = [found[describe(path)["Title"].partition(":")[0]][0] for path in all_scripts()]
    assert runs == ["yes"] * 5 + ["no"] * (len(runs) - 5)
    assert "torch.compile found no working C++ compiler" in found["05 torch.compile"][2]
    assert found["06 flash attention"] == ["no", "–", "the same is missing"]
    assert found["C++ compiler"] == ["missing: no /no/such"]
    unseen = "" if torch.cuda.is_available() else ", but this torch sees no GPU"
    assert found["NVIDIA driver"] == [f"599.01{unseen}"]


def test_doctor_on_a_gpu_without_bf16(monkeypatch, capsys):
    def emulated(device):
        raise BadInput("this card has no bfloat16 units")

    works = doctor.Verdict("yes", "yes", "works")
    monkeypatch.setattr(doctor, "require_bf16", emulated)
    monkeypatch.setitem(doctor.TRIALS, "torch.compile(", lambda device: works)
    monkeypatch.setenv("COLUMNS", "150")
    doctor.attempt.cache_clear()
    assert doctor.run(SimpleNamespace(device="cpu")) == 1
    doctor.attempt.cache_clear()
    lines = [line for line in capsys.readouterr().out.splitlines() if re.match(r"│ \d\d ", line)]
    runs = [line.split("│")[2].strip() for line in lines]
    assert runs == ["yes"] * 3 + ["no"] * (len(runs) - 3)
    assert "this card has no bfloat16 units" in lines[3]


def test_doctor_refuses_a_device_that_is_not_there():
    refused(ladder("doctor", "--device", "cuda:99"), "--device cuda:99")


@pytest.mark.cuda
def test_doctor_on_cuda():
    done = ladder("doctor", "--device", "cuda")
    found = rows(done)
    assert found["02 TF32"][0] == "yes" and found["GPU 0"]
    assert (done.returncode == 1) == any(row[0] == "no" for row in found.values())
