"""files.py: the commit that logs name, and atomic writes."""

import errno
import os

import pytest

from ladder import files
from ladder.files import write_atomic


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


def test_the_commit_is_head_and_whether_running_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert files.commit() == "unknown"  # no repository
    running = ("baseline.py", "peers/a.py", "ladder/measure/matmul.py", "ladder/measure/work.json")
    others = ("README.md", "ladder/commands/climb.py", "ladder/show/page.py")
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
    for name in running:
        (tmp_path / name).write_text("2")
        assert files.commit() == f"{head}-dirty", name
        files.git("checkout", "--", name)
    (tmp_path / "ladder" / "mine.py").touch()
    assert files.commit() == f"{head}-dirty"
    (tmp_path / "COMMIT").write_text("0123456789ab\n")  # of a climb's copy of the code
    assert files.commit() == "0123456789ab"
