"""Checkpoints of training on ranks: each is one file, written atomically, the last two are kept."""

import re
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from ladder.errors import UsageError
from ladder.files import lock, write_atomic
from ladder.weights import BEST

# Exactly: people copy checkpoints, and "step_000002 (copy).pt" is theirs.
NAME = re.compile(r"step_(\d{6}|[1-9]\d{6,})\.pt")
_locks = []  # the lock of --ckpt-dir, held until this process ends


def checkpoints(folder: str) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem[5:]))


def save(folder: str, step: int, **state) -> Path:
    """Write step_NNNNNN.pt with `state`. Returns its path.

    The one before it is kept, older ones are deleted. Raises OSError.
    """
    path = Path(folder) / f"step_{step:06d}.pt"
    write_atomic(path, lambda file: torch.save({"step": step, **state}, file))
    for old in checkpoints(folder)[:-2]:
        old.unlink()
    return path


def read(path: Path) -> dict:
    """Return what `save` wrote. Its tensors are a memory map: a rank pays only for those it uses.

    Raises UsageError if the file is damaged or cannot be read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # torch raises many kinds
        raise UsageError(f"{path} is damaged or not a checkpoint of ddp_run.py") from None


def restore(path: Path, model, optimizer, scaler) -> tuple[int, int]:
    """Copy a checkpoint into model, optimizer and scaler. Return its step and its position.

    It copies, because the optimizer's load_state_dict() would keep the file's own tensors. Fused
    kernels do not check sizes: they would write past the end of a smaller tensor.
    """
    saved = read(path)
    scatter(saved["model"], model)
    params = []
    for group in optimizer.param_groups:
        params.extend(group["params"])
    for index, moments in saved["optimizer"]["state"].items():
        p = params[index]
        own = {
            "step": torch.zeros((), device=p.device),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
        for name, tensor in own.items():
            copy(moments[name], tensor)
        optimizer.state[p] = own
    if scaler.is_enabled() and saved["scaler"]:  # empty if the run was not in float16
        scaler.load_state_dict(saved["scaler"])
    return saved["step"], saved["position"]


def scatter(state: dict, model):
    """Copy the weights in `state` into `model`, one at a time. If sharded, scatter rank 0's."""
    for name, w in model.state_dict().items():
        copy(state[name], w)


def copy(source: torch.Tensor, target: torch.Tensor):
    """Copy `source`, a whole tensor, into `target`. If that is sharded, scatter rank 0's tensor."""
    if isinstance(target, DTensor):
        if dist.get_rank() > 0:  # only receives its shard
            source = torch.empty(target.shape, device=target.device)
        source = source.to(target.device, target.dtype)
        source = distribute_tensor(source, target.device_mesh, target.placements)
    target.detach().copy_(source)


def gather(state):
    """Return `state` with its sharded tensors gathered, one at a time, on the CPU of rank 0."""
    if isinstance(state, dict):
        return {key: gather(part) for key, part in state.items()}
    if isinstance(state, DTensor):
        whole = state.full_tensor()
        return None if dist.get_rank() else whole.cpu()
    return state


def check_identity(path: Path, saved: dict, identity: dict[str, str]):
    """Raise UsageError if `path` is of a run with another model, batch, seed or text."""
    for key, now in identity.items():
        before = str(saved.get(key))
        if before.split()[-1] != now.split()[-1]:  # of a text, the hash: it may have a new name
            raise UsageError(f"{path} was saved with {key} {before}, this run has {now}")


def find_checkpoint(
    folder: Path, resume: bool, identity: dict, schedule: str, print0: Callable
) -> Path | None:
    """Return the newest checkpoint that is not damaged, or None for a fresh start.

    `print0` is told if it was trained with another `schedule` of the learning rate. `folder` stays
    locked until this process ends. Raises UsageError, OSError.
    """
    _locks.clear()  # of an earlier run in this process
    folder.mkdir(parents=True, exist_ok=True)
    _locks.append(lock(folder))
    paths = checkpoints(folder)
    if not resume and (paths or (folder / BEST).exists()):
        do = "continue it with --resume, delete it, or choose another --ckpt-dir"
        raise UsageError(f"{folder} holds an earlier run: {do}")
    for path in reversed(paths):
        try:
            saved = read(path)
        except UsageError as error:
            if path == paths[0]:
                raise UsageError(f"{error}: delete it to start from the beginning") from None
            print0(f"note  {error}: the one before it is used")
            path.rename(f"{path}.damaged")  # it must not count as one of two to keep
            continue
        check_identity(path, saved["identity"], identity)
        print0(f"note  resumed after step {saved['step']} ({schedule}), from {path}")
        before = saved["schedule"]
        if before != schedule:
            print0(f"note  another learning rate from here on: {schedule}, not {before}")
        return path
    return None
