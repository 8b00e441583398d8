"""Checkpoints in folders where people copy files."""

import os
import shutil

import pytest
from test_checkpoint import find, save

from ladder import checkpoint, ranks


@pytest.mark.parametrize(
    "copy", ["step_000002 (copy).pt", "step_000002 2.pt", "step_000002.copy.pt", "step_2.pt"]
)
def test_copies_are_neither_read_nor_counted_nor_deleted(copy, tmp_path):
    (tmp_path / copy).write_bytes(b"mine")
    assert find(tmp_path, resume=False) is None  # no earlier run is there
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert find(tmp_path).name == "step_000003.pt"
    own = [".lock", "step_000002.pt", "step_000003.pt"]
    assert sorted(os.listdir(tmp_path)) == sorted([*own, copy])
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == own[1:]


def test_the_newest_folder_is_not_a_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "checkpoints" / "20261122-101500-4242"
    own.mkdir(parents=True)
    for copy in ("20261122-101500-4242 (copy)", "20261122-101500-4242-old", "20261123-mine"):
        shutil.copytree(own, own.with_name(copy))
    args = ranks.parse("", ["--resume", "--device", "cpu"])
    assert args.ckpt_dir.name == own.name
