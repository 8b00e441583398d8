"""checkpoint.py: files to resume from."""

import math
import os
from types import SimpleNamespace

import pytest
import torch

from ladder import checkpoint, weights
from ladder.errors import UsageError
from ladder.files import lock

OFF = torch.amp.GradScaler("cpu", enabled=False)


def stepped():
    """A model and its optimizer after a step."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(64)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder, step, scaler=OFF):
    model, optimizer = stepped()
    return checkpoint.save(
        folder,
        step,
        model=model.state_dict(),
        optimizer=optimizer.state_dict(),
        scaler=scaler.state_dict(),
        position=0,
        identity={},
        schedule="9 steps",
    )


def find(folder, print0=print, resume=True):
    return checkpoint.find_checkpoint(folder, resume, {}, "9 steps", print0)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path):
    first = save(tmp_path, 1)
    second = save(tmp_path, 2)
    assert find(tmp_path) == second
    second.write_bytes(second.read_bytes()[:-99])
    said = []
    assert find(tmp_path, said.append) == first
    assert "is damaged" in said[0] and "resumed after step 1" in said[1]
    assert save(tmp_path, 3).exists() and first.exists() and not second.exists()
    (tmp_path / "step_000003.pt").unlink()
    first.write_bytes(b"")
    with pytest.raises(UsageError, match=r"step_000001.pt is damaged .* delete it"):
        find(tmp_path)
    assert first.exists()


def test_a_folder_is_of_one_run(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(UsageError, match="holds an earlier run: continue it with"):
        find(tmp_path, resume=False)
    checkpoint._locks.clear()
    with lock(tmp_path), pytest.raises(UsageError, match="another run is at work"):
        find(tmp_path)


def test_what_is_restored_has_the_layout_of_the_run(tmp_path):
    """Fused kernels would write past the end of a tensor of another layout."""
    model, optimizer = stepped()
    path = tmp_path / "other.pt"
    saved = checkpoint.read(save(tmp_path, 3))
    saved["optimizer"]["state"][0]["exp_avg"] = torch.ones(1).expand(64, 64)  # one number on disk
    torch.save(saved, path)
    assert checkpoint.restore(path, model, optimizer, OFF)["step"] == 3
    moment = optimizer.state[model.weight]["exp_avg"]
    assert moment.stride() == (64, 1) and (moment == 1).all()


def test_float16_may_begin_and_end_with_a_checkpoint(tmp_path):
    """Other types have an empty state of the scaler."""
    scaler = torch.amp.GradScaler("cpu", 8.0)
    for before, now, scale in ((scaler, OFF, 1), (OFF, scaler, 8)):
        path = save(tmp_path, 3, before)
        assert checkpoint.restore(path, *stepped(), now)["step"] == 3
        assert now.get_scale() == scale


def test_two_are_kept_and_copies_are_neither_read_nor_counted_nor_deleted(tmp_path):
    copies = ["step_000002 (copy).pt", "step_000002.copy.pt", "step_2.pt"]
    for name in copies:
        (tmp_path / name).write_bytes(b"mine")
    assert find(tmp_path, resume=False) is None  # no earlier run is there
    (tmp_path / "unfinished.tmp").touch()  # of a run that was killed
    for step in (9, 999999, 1000000):
        save(tmp_path, step)
    assert find(tmp_path).name == "step_1000000.pt"
    own = ["step_999999.pt", "step_1000000.pt"]
    assert sorted(os.listdir(tmp_path)) == sorted([".lock", *own, *copies])


def test_a_model_with_a_loss_of_nan_is_not_the_best(tmp_path):
    job = checkpoint.Job(1, {}, "9 steps", tmp_path, checkpoint=None, best=math.inf)
    run = SimpleNamespace(print0=print, args=SimpleNamespace(seq_len=64))
    job.validated(run, step=1, model=None, val_loss=math.nan)
    assert job.best == math.inf
    assert not (tmp_path / weights.BEST).exists()
