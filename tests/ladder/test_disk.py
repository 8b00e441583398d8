"""disk.py: atomic writes, and folders."""

import errno
import os

import pytest
import torch

from ladder.disk import make_folder, write_atomic


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


def test_two_folders_of_one_second_have_two_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_folder(None, "climb") != make_folder(None, "climb")
