"""files.py: the commit that logs name, whose `ladder` a script runs with, and atomic writes."""

import errno
import os
import shutil

import pytest
import torch
from helpers import SMALL, run_script

from ladder import files
from ladder.files import ROOT, write_atomic


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def full(file):
        file.write(b"new")
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a"
    write_atomic(path, b"old")
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(path, full)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_the_error_of_a_full_disk_names_the_file_also_where_torch_saves(tmp_path):
    """torch.save() fails once more as it closes the file."""

    class Full:
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(tmp_path / "a.pt", lambda _: torch.save(torch.ones(9), Full()))
    assert caught.value.filename == str(tmp_path / "a.pt")


def test_the_commit_is_head_and_whether_running_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert files.commit() == "unknown"  # no repository
    running = ("baseline.py", "peers/a.py", "ladder/measure/work.json")
    others = ("README.md", "ladder/show/page.py")
    for name in (*running, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    files.git("init")
    files.git("add", ".")
    files.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "all")
    head = files.git("rev-parse", "HEAD").stdout[:12]
    for name in others:
        (tmp_path / name).write_text("2")
    assert files.commit() == head
    for name in (*running, "ladder/mine.py"):  # the last is new
        (tmp_path / name).write_text("2")
        assert files.commit() == f"{head}-dirty", name
        (tmp_path / name).write_text("1")


def test_a_copy_inside_another_repository_has_no_commit_of_that(tmp_path, monkeypatch):
    """As a ZIP that was unpacked in a home whose settings are in git, where all else is ignored."""
    checkout = tmp_path / "ladder"
    checkout.mkdir()
    (checkout / "baseline.py").write_text("1")
    (tmp_path / ".gitignore").write_text("*")
    monkeypatch.setattr(files, "ROOT", tmp_path)
    files.git("init")
    files.git("add", "--force", ".gitignore")
    files.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "settings")
    monkeypatch.setattr(files, "ROOT", checkout)
    assert files.commit() == "unknown" and "baseline.py" in files.no_commit()


# ------------------------------------------------------------------ another clone's `ladder`


RUNG = "speedups/01_weight_tying.py"


def copy_sources(folder, target):
    """Without __pycache__, in which other tests make files and rename them meanwhile."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def clone(tmp_path):
    """Another clone, with as much as a rung needs."""
    clone = tmp_path / "clone"
    for name in ("ladder", "data", "speedups"):
        copy_sources(ROOT / name, clone / name)
    shutil.copy(ROOT / "baseline.py", clone)
    return clone


def run(script, tmp_path, package):
    """Run a script with the `ladder` that is in the folder `package`."""
    flags = [*SMALL, "--steps", 1, "--log-dir", tmp_path / "runs"]
    return run_script(script, *flags, env={"PYTHONPATH": str(package)})


@pytest.mark.parametrize("name", [RUNG, "data/prepare.py"])
def test_a_script_of_another_clone_is_refused(name, clone, tmp_path):
    done = run(clone / name, tmp_path, ROOT)
    script = os.path.basename(name)
    is_in = f"{script} is in {clone}, but this `ladder` is that of {ROOT}: PYTHONPATH={clone}"
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == f"error {is_in} runs that one's; or `pip install -e {clone}`\n"


def test_a_climbs_copy_of_the_code_runs_with_its_own_package(clone, tmp_path):
    """It lies in a clone, but has no commands."""
    code = clone / "runs" / "climb-1" / "code"
    shutil.copytree(clone, code, ignore=shutil.ignore_patterns("runs", "commands"))
    assert run(code / RUNG, tmp_path, code).returncode == 0


def test_a_script_from_outside_runs_if_ladder_is_in_a_clone(tmp_path):
    """Not as pip install . leaves it: the package alone, in another folder."""
    script = shutil.copy(ROOT / "baseline.py", tmp_path / "my_idea.py")
    assert run(script, tmp_path, ROOT).returncode == 0
    package = tmp_path / "site-packages"
    copy_sources(ROOT / "ladder", package / "ladder")
    done = run(script, tmp_path, package)
    how = "clone the repository, and `pip install -e .` in it"
    assert done.returncode == 2
    assert done.stderr == f"error `ladder` works on the scripts, which are not here: {how}\n"
