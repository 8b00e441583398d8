"""checkout.py: the commit that logs name, and whose `ladder` a script runs with."""

import re
import shutil

import pytest

from ladder import checkout
from ladder.checkout import ROOT
from ladder.errors import UsageError


def test_the_commit_is_head_and_whether_running_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    running = ("baseline.py", "peers/a.py", "ladder/measure/work.json")
    others = ("README.md", "ladder/show/page.py")
    for name in (*running, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    checkout.git("init")
    checkout.git("add", "--force", ".")
    checkout.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "all")
    head = checkout.git("rev-parse", "HEAD").stdout[:12]
    (tmp_path / "baseline.py").unlink()
    checkout.git("-c", "core.autocrlf=true", "checkout", ".")  # as Git for Windows
    for name in others:
        (tmp_path / name).write_text("2")
    (tmp_path / "baseline.py").chmod(0o755)  # as a network drive shows all files
    checkout.git("config", "core.fileMode", "true")
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))  # as a hook of another repository sets it
    assert checkout.commit() == head
    for name in (*running, "ladder/mine.py"):  # the last is new
        (tmp_path / name).write_text("2")
        assert checkout.commit() == f"{head}-dirty" and checkout.changed() == [name]
        (tmp_path / name).write_text("1\n")


def test_a_script_of_another_clone_is_refused(tmp_path):
    clone = tmp_path / "clone"
    script = clone / "speedups" / "01_weight_tying.py"
    (clone / "ladder").mkdir(parents=True)
    (clone / "baseline.py").touch()
    is_in = f"{script} is in the checkout {clone}, but this `ladder` is that of {ROOT}"
    how = f"PYTHONPATH={clone} runs its own; or `pip install -e {clone}`"
    with pytest.raises(UsageError, match=re.escape(f"{is_in}: {how}")):
        checkout.require_own(script)
