"""checkpoint.py: files to resume from."""

import os
import re

import pytest
import torch

from ladder import checkpoint
from ladder.errors import BadInput
from ladder.files import lock

OFF = torch.amp.GradScaler("cpu", enabled=False)
IDENTITY = {"model": "tiny", "data": "topics 0123"}


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
        identity=IDENTITY,
        schedule="9 steps",
    )


def find(folder, say=print, resume=True, **identity):
    return checkpoint.find_checkpoint(folder, resume, IDENTITY | identity, "9 steps", say)


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
    with pytest.raises(BadInput, match=r"step_000001.pt is damaged .* delete it"):
        find(tmp_path)
    assert first.exists()


def test_two_are_kept_and_nothing_unfinished(tmp_path):
    (tmp_path / "unfinished.tmp").touch()  # of a run that was killed
    for step in (9, 999999, 1000000):
        save(tmp_path, step)
    assert find(tmp_path).name == "step_1000000.pt"
    assert sorted(os.listdir(tmp_path)) == [".lock", "step_1000000.pt", "step_999999.pt"]


def test_another_run_is_refused_and_its_texts_are_named(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(BadInput, match="saved with data topics 0123, this run has mine 4567"):
        find(tmp_path, data="mine 4567")
    holds = f"{tmp_path} holds an earlier run: continue it with"
    with pytest.raises(BadInput, match=re.escape(holds)):
        find(tmp_path, resume=False)
    checkpoint._locks.clear()
    with lock(tmp_path), pytest.raises(BadInput, match="another run is at work"):
        find(tmp_path)


def test_what_is_restored_has_the_layout_of_the_run(tmp_path):
    """Fused kernels would write past the end of a tensor of another layout."""
    model, optimizer = stepped()
    path = tmp_path / "other.pt"
    saved = checkpoint.read(save(tmp_path, 3))
    moments = saved["optimizer"]["state"]
    moments[0]["exp_avg"] = torch.ones(1).expand(64, 64)  # one number on disk
    moments[1]["exp_avg_sq"] = torch.ones(64, dtype=torch.float16)
    torch.save(saved, path)
    assert checkpoint.restore(path, model, optimizer, OFF) == (3, 0)
    for p in model.parameters():
        own = optimizer.state[p]
        for moment in (own["exp_avg"], own["exp_avg_sq"]):
            assert moment.stride() == p.stride() and moment.dtype == torch.float32
    assert (optimizer.state[model.weight]["exp_avg"] == 1).all()
    optimizer.step()


def test_float16_may_begin_and_end_with_a_checkpoint(tmp_path):
    """Other types have an empty state of the scaler."""
    scaler = torch.amp.GradScaler("cpu", 8.0)
    for before, now, scale in ((scaler, OFF, 1), (OFF, scaler, 8)):
        path = save(tmp_path, 3, before)
        assert checkpoint.restore(path, *stepped(), now) == (3, 0)
        assert now.get_scale() == scale


@pytest.mark.parametrize("copy", ["step_000002 (copy).pt", "step_000002.copy.pt", "step_2.pt"])
def test_copies_are_neither_read_nor_counted_nor_deleted(copy, tmp_path):
    (tmp_path / copy).write_bytes(b"mine")
    assert find(tmp_path, resume=False) is None  # no earlier run is there
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert find(tmp_path).name == "step_000003.pt"
    own = [".lock", "step_000002.pt", "step_000003.pt"]
    assert sorted(os.listdir(tmp_path)) == sorted([*own, copy])
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == own[1:]
