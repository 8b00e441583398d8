"""Checkpoints of ddp_run.py: files that are whole or not there, of which the last two are kept."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from ladder.errors import BadInput


def checkpoints(folder: str) -> list[Path]:
    """The whole ones in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if path.stem[5:].isdecimal()]
    return sorted(found, key=lambda path: int(path.stem[5:]))


def save(folder: str, **state) -> Path:
    """Write step_NNNNNN.pt, whole or not at all, and keep the last two. Returns its path.

    `state` has `step`, `identity` and whatever else. Raises BadInput where it cannot be written.
    """
    path = Path(folder) / f"step_{state['step']:06d}.pt"
    unfinished = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())  # on the disk before its name is
        os.replace(unfinished, path)
    except (OSError, RuntimeError) as error:  # torch has its own for a full disk
        raise BadInput(f"cannot write the checkpoint {path}: {error}") from error
    for old in checkpoints(folder)[:-2]:
        old.unlink()
    return path


def load(path: Path, identity: dict) -> dict:
    """What `save` wrote, on the CPU. Raises BadInput if it is damaged, foreign, of another run."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        found = saved["identity"]
    except Exception as error:  # torn and foreign files make torch raise many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0][:80]
        raise BadInput(
            f"{path} is damaged or no checkpoint of ddp_run.py ({reason}): delete it, and "
            "--resume takes the one before it"
        ) from None
    for key, value in identity.items():
        if found.get(key) != value:
            raise BadInput(f"{path} was saved with {key} {found.get(key)}, this run has {value}")
    return saved


def choose(folder: str, resume: bool, identity: dict, say: Callable[[str], None]) -> Path | None:
    """The path to go on from, looked into, or None for a fresh start.

    Raises BadInput, also where nothing could be saved: hours later is too late to find out.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BadInput(f"cannot write checkpoints into {folder}: {error.strerror}") from None
    for unfinished in Path(folder).glob("step_*.tmp"):
        say(f"note  {unfinished} was never finished: deleted, the one before it counts")
        unfinished.unlink()
    found = checkpoints(folder)
    if not resume:
        if found:
            raise BadInput(
                f"{found[-1]} is of an earlier run: go on from it with --resume, delete it, or "
                "choose another --ckpt-dir"
            )
        return None
    if not found:
        say(f"note  no checkpoint in {folder}: starting from the beginning")
        return None
    load(found[-1], identity)
    return found[-1]
