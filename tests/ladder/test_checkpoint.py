"""checkpoint.py: files to resume from."""

import errno
import math
import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from helpers import SMALLER, load
from models import saved_model
from torch.distributed.checkpoint.state_dict import get_state_dict

from ladder import checkpoint, weights
from ladder.checkout import ROOT
from ladder.cli import parse_train_args
from ladder.corpus import Corpus
from ladder.disk import lock
from ladder.errors import UsageError

TRAIN = load(ROOT / "train.py")
OFF = torch.amp.GradScaler("cpu", enabled=False)


def stepped():
    """A model and its optimizer after a step."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(64)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder, step, scaler=OFF, settings=None, before=None):
    model, optimizer = stepped()
    weights, moments = get_state_dict(model, optimizer)
    state = dict(model=weights, optimizer=moments, scaler=scaler.state_dict())
    state |= dict(step=step, position=0, settings=settings)
    return checkpoint.write(folder, state, before)


def find(folder):
    path, _ = checkpoint.find_checkpoint(folder, print)
    return path


def open_run(folder, *flags):
    """The Checkpoints of a small run; `folder` None: in checkpoints/."""
    own = ["--model", "tiny", "--batch-size", "1", "--seq-len", "4", "--total-batch", "4"]
    own += ["--device", "cpu", "--val-tokens", "8", *flags]
    if folder:
        own += [f"--ckpt-dir={folder}"]
    text = Corpus("text", "0123", [np.arange(99, dtype=np.uint16)])
    closing = SimpleNamespace(enter_context=lambda lock: lock.close())
    run = SimpleNamespace(print0=print, closing=closing)
    return checkpoint.Checkpoints(parse_train_args("", own), text, text, run)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-99])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # in a weight
    path.write_bytes(content)


def replace_by_code(path):
    torch.save(torch.nn.Linear(1, 1), path)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, replace_by_code])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(damage, tmp_path, capsys):
    """It is neither renamed nor one of the two that are kept; and if all are, no run starts."""
    first = save(tmp_path, 1)
    second = save(tmp_path, 2, before=first)
    damage(second)
    damaged = second.read_bytes()
    assert find(tmp_path) == first
    said = capsys.readouterr().out
    assert str(second) in said and "the one before it is tried" in said
    third = save(tmp_path, 3, before=first)
    assert checkpoint.checkpoints_in(tmp_path) == [first, second, third]
    assert second.read_bytes() == damaged
    fourth = save(tmp_path, 4, before=third)
    assert checkpoint.checkpoints_in(tmp_path) == [third, fourth]
    damage(third)
    damage(fourth)
    with pytest.raises(UsageError, match=r"^no checkpoint in .* is sound: start again in another"):
        find(tmp_path)


def test_a_folder_that_cannot_be_mapped_is_read_without(tmp_path, monkeypatch):
    """Checkpoints and best/: such are some network drives."""
    path = save(tmp_path, 1)
    load = torch.load

    def cannot(*_, mmap=False, **how):
        if mmap:
            raise RuntimeError(f"unable to mmap 99 bytes from file <{path}>: No such device (19)")
        return load(path, **how)

    monkeypatch.setattr(torch, "load", cannot)
    assert find(tmp_path) == path and checkpoint.read(path)["step"] == 1
    model = saved_model(tmp_path)
    monkeypatch.setattr(weights, "load_file", Mock(side_effect=OSError("No such device")))
    assert weights.read(tmp_path / "best")[0] == {"format": "pt", "val_loss": "9"}
    _, found, _ = weights.load(str(tmp_path))
    assert torch.equal(found[weights.WTE], model.lm_head.weight)


@pytest.mark.parametrize("why", ["unable to allocate: Cannot allocate memory (12)", "new"])
def test_what_cannot_be_read_is_not_damaged(why, tmp_path, monkeypatch):
    """The memory is full, or PyTorch has a new reason: no older one is resumed."""
    path = save(tmp_path, 1)
    monkeypatch.setattr(torch, "load", Mock(side_effect=RuntimeError(why)))
    with pytest.raises(UsageError, match=f"step_000001.pt cannot be read: (out of memory|{why})"):
        find(tmp_path)
    assert path.exists()


def test_the_first_checkpoint_is_no_surprise(tmp_path, monkeypatch, capsys):
    """What a folder refuses ends the run before its first step. That it cannot flush is told."""
    for number in (errno.EDQUOT, errno.ENOSPC, errno.EIO):
        monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "no")))
        with pytest.raises(OSError, match=r"no: '.*trial'"):
            open_run(tmp_path)
    for number in (errno.EINVAL, errno.ENOTSUP):
        monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "no")))
        open_run(tmp_path)
        assert "a file system that flushes no file: a power cut" in capsys.readouterr().out
        save(tmp_path, 1).unlink()
    assert os.listdir(tmp_path) == [".lock"]


def test_a_folder_is_of_one_run(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(UsageError, match="holds an earlier run: continue it with"):
        open_run(tmp_path)
    with lock(tmp_path), pytest.raises(UsageError, match="another run is at work"):
        open_run(tmp_path, "--resume")


def test_the_run_that_began_last_is_resumed(tmp_path, monkeypatch):
    """Its log says when: a copy has any name and time. Without a checkpoint it begins again: no
    older run may take its place."""
    monkeypatch.chdir(tmp_path)
    settings = open_run(None).settings
    newest = log_of(settings, "20260101-000000-1", "20261128-100000-000001")
    log_of(settings, "mine", "20261128-090000-000000")
    log_of(settings, "20990102-000000-3 (copy)", "20261128-100000-000001")
    assert open_run(None, "--resume").newest == newest
    newest.unlink()
    run = open_run(None, "--resume")
    assert run.newest is None and run.folder == newest.parent


def log_of(settings, name, began):
    folder = Path("checkpoints", name)
    path = save(folder, 3, settings=settings)
    (folder / f"ddp_run-{began}.log").touch()
    return path


def test_a_full_disk_costs_the_best_model_and_not_the_run(tmp_path, monkeypatch, capsys):
    run = open_run(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(weights, "write_atomic", Mock(side_effect=full))
    found, saved = run.keep_best(2, TRAIN.GPT(TRAIN.GPTConfig(**SMALLER)), 3.5, 8)
    assert found == {"val_loss": 3.5, "best_val_loss": 3.5} and not saved
    assert "best is not saved: No space left on device" in capsys.readouterr().out


def save_best(folder, run):
    config = TRAIN.GPTConfig(**SMALLER)
    metadata = {**run.settings, "step": "2", "val_loss": "3.5"}
    weights.save(folder / weights.BEST, config, TRAIN.GPT(config).state_dict(), metadata)


def test_the_best_model_is_replaced_by_a_better_one_of_the_same_run_alone(tmp_path, capsys):
    """Losses on other text do not compare. One that was cut short is no better one."""
    run = open_run(tmp_path / "other")
    save_best(tmp_path, run)
    assert open_run(tmp_path, "--resume").best_loss == 3.5  # without a checkpoint, too
    with pytest.raises(UsageError, match="best was saved with seed 1337, this run has 7"):
        open_run(tmp_path, "--resume", "--seed=7")
    save(tmp_path, 3, settings=run.settings)
    with pytest.raises(UsageError, match="was saved with val_tokens 8, this run has 16"):
        open_run(tmp_path, "--resume", "--val-tokens=16")
    assert open_run(tmp_path, "--resume").best_loss == 3.5
    truncate(tmp_path / weights.BEST / weights.WEIGHTS)
    run = open_run(tmp_path, "--resume")
    assert run.best_loss == math.inf
    assert "the next model that is validated takes its place" in capsys.readouterr().out
    run.folder = tmp_path
    for step, loss in ((4, 5.5), (5, math.nan), (6, 6.0)):
        run.keep_best(step, TRAIN.GPT(TRAIN.GPTConfig(**SMALLER)), loss, 8)
    assert open_run(tmp_path, "--resume").best_loss == 5.5


def test_what_is_restored_has_the_layout_of_the_run(tmp_path):
    """Fused kernels would write past the end of a tensor of another layout."""
    model, optimizer = stepped()
    path = tmp_path / "other.pt"
    saved = checkpoint.read(save(tmp_path, 3))
    one_number = torch.ones(1).expand(64, 64)
    saved["optimizer"]["state"]["weight"]["exp_avg"] = one_number
    torch.save(saved, path)
    assert checkpoint.restore(path, model, optimizer, OFF) == (3, 0)
    moment = optimizer.state[model.weight]["exp_avg"]
    assert moment.stride() == (64, 1) and (moment == 1).all()


def test_float16_may_begin_and_end_with_a_checkpoint(tmp_path):
    """Other types have an empty state of the scaler."""
    scaler = torch.amp.GradScaler("cpu", 8.0)
    for before, now, scale in ((scaler, OFF, 1), (OFF, scaler, 8)):
        path = save(tmp_path, 3, before)
        assert checkpoint.restore(path, *stepped(), now) == (3, 0)
        assert now.get_scale() == scale


def test_two_are_kept_and_copies_are_neither_read_nor_counted_nor_deleted(tmp_path):
    copies = ["step_000002 (copy).pt", "step_000002.copy.pt", "step_2.pt"]
    for name in copies:
        (tmp_path / name).write_bytes(b"mine")
    open_run(tmp_path)  # no earlier run is there
    (tmp_path / "unfinished.tmp").touch()  # of a run that was killed
    newest = None
    for step in (9, 999999, 1000000):
        newest = save(tmp_path, step, before=newest)
    assert find(tmp_path).name == "step_1000000.pt"
    own = ["step_999999.pt", "step_1000000.pt"]
    assert sorted(os.listdir(tmp_path)) == sorted([".lock", *own, *copies])
