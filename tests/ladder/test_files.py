"""files.py: the commit that logs name, whose `ladder` a script runs with, and atomic writes."""

import errno
import os
import re
import shutil

import pytest
import torch

from ladder import files
from ladder.errors import UsageError
from ladder.files import ROOT, make_folder, write_atomic


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    class Full:
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a"
    write_atomic(path, b"old")
    with pytest.raises(OSError, match="No space") as caught:  # torch.save() hides it
        write_atomic(path, lambda _: torch.save(torch.ones(9), Full()))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_the_commit_is_head_and_whether_running_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    running = ("baseline.py", "peers/a.py", "ladder/measure/work.json")
    others = ("README.md", "ladder/show/page.py")
    for name in (*running, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    files.git("init")
    files.git("add", "--force", ".")
    files.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "all")
    head = files.git("rev-parse", "HEAD").stdout[:12]
    (tmp_path / "baseline.py").unlink()
    files.git("-c", "core.autocrlf=true", "checkout", ".")  # as Git for Windows
    for name in others:
        (tmp_path / name).write_text("2")
    (tmp_path / "baseline.py").chmod(0o755)  # as a network drive shows all files
    files.git("config", "core.fileMode", "true")
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))  # as a hook of another repository sets it
    assert files.commit() == head
    for name in (*running, "ladder/mine.py"):  # the last is new
        (tmp_path / name).write_text("2")
        assert files.commit() == f"{head}-dirty" and files.changed() == [name]
        (tmp_path / name).write_text("1\n")


# ------------------------------------------------------------------ another clone's `ladder`


def test_a_script_of_another_clone_is_refused(tmp_path):
    clone = tmp_path / "clone"
    script = clone / "speedups" / "01_weight_tying.py"
    (clone / "ladder").mkdir(parents=True)
    (clone / "baseline.py").touch()
    is_in = f"{script} is in the checkout {clone}, but this `ladder` is that of {ROOT}"
    how = f"PYTHONPATH={clone} runs its own; or `pip install -e {clone}`"
    with pytest.raises(UsageError, match=re.escape(f"{is_in}: {how}")):
        files.require_own(script)


def test_two_folders_of_one_second_have_two_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_folder(None, "climb") != make_folder(None, "climb")
