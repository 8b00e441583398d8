"""Checkpoints of ddp_run.py: written atomically; the last two are kept."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import torch

from ladder.errors import BadInput
from ladder.files import lock, regular, write_whole

KEYS = ("step", "position", "identity", "flags", "model", "optimizer", "scaler")

HASH_BYTES = 32  # a checkpoint file ends with its SHA-256, which torch.load ignores
_locks = []  # holds the lock of --ckpt-dir while this process trains


class Damaged(BadInput):
    """A file whose bytes are not those that `save` wrote."""


def checkpoints(folder: str) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if path.stem[5:].isdecimal()]
    return sorted(filter(Path.is_file, found), key=lambda path: int(path.stem[5:]))


def _hash(file: BinaryIO, size: int) -> bytes:
    """The SHA-256 of the first `size` bytes of a file; its position is then after them."""
    sha256 = hashlib.sha256()
    file.seek(0)
    while piece := file.read(min(2**20, size - file.tell())):
        sha256.update(piece)
    return sha256.digest()


def save(folder: str, **state) -> Path:
    """Write step_NNNNNN.pt atomically, keep the last two and return its path.

    `state` has KEYS. Raises BadInput if it cannot be written.
    """
    path = Path(folder) / f"step_{state['step']:06d}.pt"

    def write(file):
        torch.save(state, file)
        file.write(_hash(file, file.tell()))

    try:
        write_whole(path, write)
    except (OSError, RuntimeError) as error:
        if isinstance(error.__context__, OSError):  # torch's own message hides a full disk
            error = error.__context__
        raise BadInput(f"cannot write the checkpoint {path}: {error}") from error
    for old in checkpoints(folder)[:-2]:
        old.unlink()
    return path


def load(path: Path, identity: dict) -> dict:
    """Load what `save` wrote, onto the CPU. Raises BadInput if it is damaged or of another run."""
    try:
        with regular(path).open("rb") as file:
            size = max(0, path.stat().st_size - HASH_BYTES)
            whole = _hash(file, size) == file.read()
    except OSError as error:
        raise BadInput(
            f"cannot read {path} ({error.strerror}): every machine has to see --ckpt-dir"
        ) from None
    if not whole:
        raise Damaged(f"{path} is damaged or not a checkpoint of ddp_run.py (its SHA-256 is wrong)")
    try:
        # Before there was float16, checkpoints had no scaler.
        saved = {"scaler": {}} | torch.load(path, map_location="cpu", weights_only=True)
        found = {key: saved["identity"].get(key) for key in identity}
        saved = {key: saved[key] for key in KEYS}
    except Exception as error:  # torch raises many kinds of error
        raise other_version(path, error) from None
    for key, value in identity.items():
        if found[key] != value:
            raise BadInput(f"{path} was saved with {key} {found[key]}, this run has {value}")
    return saved


def other_version(path: Path, error: Exception) -> BadInput:
    """The error for a complete checkpoint that this version of ddp_run.py cannot use."""
    why = f"{type(error).__name__}: {error}".splitlines()[0][:80]
    return BadInput(f"{path} is of another version of ddp_run.py ({why})")


def restore(path: Path, identity: dict, model, optimizer, scaler) -> tuple[int, int]:
    """Load a checkpoint into all three; return its step and position. Raises BadInput."""
    saved = load(path, identity)
    try:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        if saved["scaler"]:  # else it was no float16 run
            scaler.load_state_dict(saved["scaler"])
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise other_version(path, error) from None
    return saved["step"], saved["position"]


def choose(
    folder: str, resume: bool, identity: dict, flags: dict, say: Callable[[str], None]
) -> Path | None:
    """The checkpoint to resume, already checked, or None for a fresh start.

    It is the newest that is not damaged. `folder` stays locked until this process ends. Prints a
    note for each of `flags` that differs from the saved one. Raises BadInput; also if checkpoints
    cannot be written, because hours later is too late to find out.
    """
    _locks.clear()  # of an earlier run in the same process
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _locks.append(lock(Path(folder)))
    except OSError as error:
        raise BadInput(f"cannot write checkpoints into {folder}: {error.strerror}") from None
    found = checkpoints(folder)
    if found and not resume:
        raise BadInput(
            f"{found[-1]} is of an earlier run: continue it with --resume, delete it, or choose "
            "another --ckpt-dir"
        )
    chosen = _newest(found, identity, flags, say) if resume else None
    if resume and not chosen:
        say(f"note  no checkpoint in {folder}: starting from the beginning")
    for unfinished in filter(Path.is_file, Path(folder).glob("step_*.pt.*.tmp")):
        say(f"note  deleted {unfinished}, which was never finished; the one before it is used")
        unfinished.unlink()
    return chosen


def _newest(found: list[Path], identity: dict, flags: dict, say) -> Path | None:
    """The last of `found` that is not damaged. Raises BadInput if all of them are."""
    for path in reversed(found):
        try:
            saved = load(path, identity)
        except Damaged as error:
            if path == found[0]:
                raise BadInput(f"{error}: delete it to start from the beginning") from None
            say(f"note  {error}: the one before it is used")
            continue
        say(f"note  going on after step {saved['step']}, from {path}")
        for flag, value in flags.items():
            if (before := saved["flags"].get(flag)) != value:
                say(f"note  {flag} was {before}, now it is {value}")
        return path
    return None
