"""Checkpoints of ddp_run.py: files that are whole or not there, of which the last two are kept."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from ladder.errors import BadInput
from ladder.files import write_whole

KEYS = ("step", "position", "identity", "flags", "model", "optimizer")


def checkpoints(folder: str) -> list[Path]:
    """The whole ones in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if path.stem[5:].isdecimal()]
    return sorted(found, key=lambda path: int(path.stem[5:]))


def save(folder: str, **state) -> Path:
    """Write step_NNNNNN.pt, whole or not at all, and keep the last two. Returns its path.

    `state` has KEYS. Raises BadInput if it cannot be written.
    """
    path = Path(folder) / f"step_{state['step']:06d}.pt"
    try:
        write_whole(path, lambda file: torch.save(state, file))
    except (OSError, RuntimeError) as error:  # torch has its own for a full disk
        raise BadInput(f"cannot write the checkpoint {path}: {error}") from error
    for old in checkpoints(folder)[:-2]:
        old.unlink()
    return path


def load(path: Path, identity: dict) -> dict:
    """What `save` wrote, on the CPU. Raises BadInput if it is damaged, foreign, of another run."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        missing = [key for key in KEYS if key not in saved]
    except OSError as error:
        raise BadInput(
            f"cannot read {path} ({error.strerror}): every machine has to see --ckpt-dir"
        ) from None
    except Exception as error:  # torn and foreign files make torch raise many kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:80]
        raise BadInput(
            f"{path} is damaged or no checkpoint of ddp_run.py ({reason}): delete it, and "
            "--resume takes the one before it"
        ) from None
    if missing:
        raise BadInput(f"{path} is of another version of ddp_run.py: it has no {missing[0]}")
    found = saved["identity"]
    for key, value in identity.items():
        if found.get(key) != value:
            raise BadInput(f"{path} was saved with {key} {found.get(key)}, this run has {value}")
    return saved


def choose(
    folder: str, resume: bool, identity: dict, flags: dict, say: Callable[[str], None]
) -> Path | None:
    """The checkpoint to resume, already checked, or None for a fresh start.

    It says where `flags` are not those it was saved with. Raises BadInput, also where nothing could
    be saved: hours later is too late to find out.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BadInput(f"cannot write checkpoints into {folder}: {error.strerror}") from None
    for unfinished in Path(folder).glob("step_*.pt.*.tmp"):
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
    saved = load(found[-1], identity)
    say(f"note  going on after step {saved['step']}, from {found[-1]}")
    for flag, value in flags.items():
        if saved["flags"][flag] != value:
            say(f"note  {flag} was {saved['flags'][flag]}, now it is {value}")
    return found[-1]
