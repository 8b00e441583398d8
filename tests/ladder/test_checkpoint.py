"""checkpoint.py: files to resume from."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import SMALLER, load

from ladder import checkpoint, weights
from ladder.cli import parse_ddp_args
from ladder.corpus import Corpus
from ladder.errors import UsageError
from ladder.files import ROOT, lock

DDP = load(ROOT / "ddp_run.py")
OFF = torch.amp.GradScaler("cpu", enabled=False)


def stepped():
    """A model and its optimizer after a step."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(64)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder, step, scaler=OFF, job=None):
    model, optimizer = stepped()
    return checkpoint.save(
        folder,
        step,
        model=model.state_dict(),
        optimizer=optimizer.state_dict(),
        scaler=scaler.state_dict(),
        position=0,
        identity=job.identity if job else {},
        schedule=job.schedule if job else "9 steps",
    )


def find(folder, print0=print):
    path, _ = checkpoint.find_checkpoint(folder, print0)
    return path


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path):
    first = save(tmp_path, 1)
    second = save(tmp_path, 2)
    assert find(tmp_path) == second
    second.write_bytes(second.read_bytes()[:-99])
    said = []
    assert find(tmp_path, said.append) == first
    assert "is damaged" in said[0]
    assert save(tmp_path, 3).exists() and first.exists() and not second.exists()
    (tmp_path / "step_000003.pt").unlink()
    first.write_bytes(b"")
    with pytest.raises(UsageError, match=r"step_000001.pt is damaged: move it away"):
        find(tmp_path)
    assert first.exists()


def broken_disk(path):
    path.symlink_to("/proc/self/mem")  # its first byte is an error of input


def of_lightning(path):
    torch.save({"state_dict": {}, "epoch": 1}, path)


def with_code(path):
    torch.save(torch.nn.Linear(1, 1), path)


CANNOT = {
    broken_disk: r"^cannot read .*step_000009.pt: Input/output error$",
    of_lightning: r"step_000009.pt is not a checkpoint of ddp_run.py: move it away, or choose",
    with_code: r"step_000009.pt is not a checkpoint of ddp_run.py: move it away, or choose",
}


@pytest.mark.parametrize("trouble", CANNOT)
def test_what_cannot_be_read_or_is_not_ours_is_not_damaged(trouble, tmp_path):
    """It is not renamed, and no older one is resumed."""
    save(tmp_path, 1)
    path = tmp_path / "step_000009.pt"
    trouble(path)
    with pytest.raises(UsageError, match=CANNOT[trouble]):
        find(tmp_path)
    assert path.is_symlink() or path.exists()


def test_without_memory_nothing_is_damaged(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("unable to mmap 99 bytes: Cannot allocate memory (12)")

    path = save(tmp_path, 1)
    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(RuntimeError, match="Cannot allocate memory"):
        find(tmp_path)
    assert path.exists()


def open_job(folder, *flags, print0=print):
    """The job of a small run; `folder` None: in checkpoints/."""
    own = ["--model", "tiny", "--batch-size", "1", "--seq-len", "4", "--total-batch", "4"]
    own += ["--device", "cpu", "--val-tokens", "8", *flags]
    if folder:
        own += [f"--ckpt-dir={folder}"]
    text = Corpus("text", "0123", [np.arange(99, dtype=np.uint16)])
    return checkpoint.open_job(parse_ddp_args("", own), text, text, print0)


def test_a_folder_is_of_one_run(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(UsageError, match="holds an earlier run: continue it with"):
        open_job(tmp_path)
    checkpoint._locks.clear()
    with lock(tmp_path), pytest.raises(UsageError, match="another run is at work"):
        open_job(tmp_path, "--resume")


def test_the_folder_with_the_newest_checkpoint_is_resumed(tmp_path, monkeypatch):
    """Its name is the time of a clock that may have been changed; the newest may have none yet."""
    monkeypatch.chdir(tmp_path)
    job = open_job(None)
    for second, name in enumerate(["20990101-000000-1", "20260101-000000-2"]):
        path = save(Path("checkpoints", name), 3, job=job)
        os.utime(path, (second, second))
    for later in ("20990102-000000-3", "20990103-000000-4 (copy)"):
        Path("checkpoints", later, weights.BEST).mkdir(parents=True)
    assert open_job(None, "--resume").checkpoint == path


def save_best(folder, job):
    config = DDP.GPTConfig(**SMALLER)
    metadata = {**job.identity, "step": "2", "val_loss": "3.5"}
    weights.save(folder / weights.BEST, config, DDP.GPT(config).state_dict(), metadata)


def test_losses_on_other_held_out_tokens_do_not_choose_the_best(tmp_path):
    job = open_job(tmp_path / "other")
    save(tmp_path, 3, job=job)
    save_best(tmp_path, job)
    with pytest.raises(UsageError, match="was saved with --val-tokens 8, this run has 16"):
        open_job(tmp_path, "--resume", "--val-tokens=16")
    assert open_job(tmp_path, "--resume").best == 3.5


def test_a_checkpoint_of_before_they_were_saved_is_resumed_with_any_held_out_tokens(tmp_path):
    """A checkpoint of those days; its best/ has how many it was validated on."""
    job = open_job(tmp_path / "other")
    del job.identity["--val-tokens"]
    path = save(tmp_path, 3, job=job)
    job.identity["val_tokens"] = "4"
    save_best(tmp_path, job)
    resumed = open_job(tmp_path, "--resume", "--val-tokens=16")
    assert (resumed.checkpoint, resumed.best) == (path, 3.5)


def test_a_best_model_without_a_checkpoint_is_replaced_and_a_note_says_so(tmp_path, capsys):
    """Of a run that was killed before its first: other flags may have made it."""
    save_best(tmp_path, open_job(tmp_path / "other"))
    assert open_job(tmp_path, "--resume", "--seed=7").best == math.inf
    assert (
        "best has no checkpoint beside it: the next validation replaces it"
        in capsys.readouterr().out
    )


def test_a_folder_that_cannot_be_made_is_told_in_a_line():
    with pytest.raises(UsageError, match="cannot make the folder /proc/q: choose another --ckpt"):
        open_job("/proc/q")


def test_a_damaged_best_model_is_replaced_and_one_that_cannot_be_read_is_not(tmp_path):
    job = open_job(tmp_path / "other")
    save(tmp_path, 3, job=job)
    save_best(tmp_path, job)
    path = tmp_path / weights.BEST / weights.WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    assert open_job(tmp_path, "--resume").best == math.inf
    path.unlink()
    broken_disk(path)
    with pytest.raises(UsageError, match=r"cannot read .*model\.safetensors: Input/output error"):
        open_job(tmp_path, "--resume")


def test_what_is_restored_has_the_layout_of_the_run(tmp_path):
    """Fused kernels would write past the end of a tensor of another layout."""
    model, optimizer = stepped()
    path = tmp_path / "other.pt"
    saved = checkpoint.read(save(tmp_path, 3))
    saved["optimizer"]["state"][0]["exp_avg"] = torch.ones(1).expand(64, 64)  # one number on disk
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
    open_job(tmp_path)  # no earlier run is there
    (tmp_path / "unfinished.tmp").touch()  # of a run that was killed
    for step in (9, 999999, 1000000):
        save(tmp_path, step)
    assert find(tmp_path).name == "step_1000000.pt"
    own = ["step_999999.pt", "step_1000000.pt"]
    assert sorted(os.listdir(tmp_path)) == sorted([".lock", *own, *copies])
