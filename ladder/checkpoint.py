"""Checkpoints of training on ranks: each is one file, written atomically, the last two are kept."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from ladder.errors import BadInput
from ladder.files import lock, write_atomic
from ladder.weights import BEST

_locks = []  # the lock of --ckpt-dir, held until this process ends


def checkpoints(folder: str) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if path.stem[5:].isdecimal()]
    return sorted(found, key=lambda path: int(path.stem[5:]))


def save(folder: str, step: int, **state) -> Path:
    """Write step_NNNNNN.pt with `state`. Returns its path.

    The one before it is kept, older ones are deleted. Raises OSError.
    """
    path = Path(folder) / f"step_{step:06d}.pt"
    try:
        write_atomic(path, lambda file: torch.save({"step": step, **state}, file))
    except RuntimeError as error:  # as torch closes the file; it hides a full disk, or Ctrl-C
        raise error.__context__ or error from None
    for old in checkpoints(folder)[:-2]:
        old.unlink()
    return path


def read(path: Path) -> dict:
    """What `save` wrote, its tensors as a memory map: ranks that use none need no memory for them.

    Raises BadInput if it is damaged or cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if wrong := file.testzip():  # torch.load does not look at the CRCs
                raise zipfile.BadZipFile(f"wrong CRC of {wrong}")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # zipfile and torch raise many kinds
        why = f"{type(error).__name__}: {error}".splitlines()[0][:80]
        raise BadInput(f"{path} is damaged or not a checkpoint of ddp_run.py ({why})") from None


def restore(path: Path, model, optimizer, scaler) -> tuple[int, int]:
    """Copy a checkpoint into all three; return its step and its position in the text.

    Into tensors of their own: fused kernels do not check the layout that they were compiled for,
    and would write past the end of a smaller tensor of a file's.
    """
    saved = read(path)
    hand_out(saved["model"], model)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for index, moments in saved["optimizer"]["state"].items():
        p = params[index]
        own = {"step": torch.zeros((), device=p.device)}
        own |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        for name, tensor in own.items():
            copy(moments[name], tensor)
        optimizer.state[p] = own
    if scaler.is_enabled() and saved["scaler"]:  # empty if the run was not in float16
        scaler.load_state_dict(saved["scaler"])
    return saved["step"], saved["position"]


def hand_out(state: dict, model) -> None:
    """Copy the weights in `state`, of a sharded model rank 0's, into `model`, one at a time."""
    for name, w in model.state_dict().items():
        copy(state[name], w)


def copy(whole: torch.Tensor, own: torch.Tensor) -> None:
    """Copy `whole` into `own`; of one that is sharded, rank 0's into the shards of all ranks."""
    if isinstance(own, DTensor):
        if dist.get_rank():  # receives its shard
            whole = torch.empty(own.shape, device=own.device)
        whole = whole.to(own.device, own.dtype)
        whole = distribute_tensor(whole, own.device_mesh, own.placements)
    own.detach().copy_(whole)


def gather(state):
    """`state` with its sharded tensors whole, on the CPU of rank 0, one at a time."""
    if isinstance(state, dict):
        return {key: gather(part) for key, part in state.items()}
    if isinstance(state, DTensor):
        whole = state.full_tensor()
        return None if dist.get_rank() else whole.cpu()
    return state


def check_identity(path: Path, saved: dict, identity: dict[str, str]) -> None:
    """Raise BadInput if `path` is of a run with another model, batch, seed or text."""
    for key, now in identity.items():
        if (before := saved.get(key)) != now:
            raise BadInput(f"{path} was saved with {key} {before}, this run has {now}")


def choose(folder: str, resume: bool, identity: dict, schedule: str, say: Callable) -> Path | None:
    """The checkpoint to resume, or None for a fresh start: the newest that is not damaged.

    `say` is told if another `schedule` of the learning rate was in use. `folder` stays locked until
    this process ends. Raises BadInput, OSError.
    """
    _locks.clear()  # of an earlier run in this process
    Path(folder).mkdir(parents=True, exist_ok=True)
    _locks.append(lock(Path(folder)))
    found, best = checkpoints(folder), Path(folder, BEST)
    if not resume and (found or best.exists()):
        do = "continue it with --resume, delete it, or choose another --ckpt-dir"
        raise BadInput(f"{found[-1] if found else best} is of an earlier run: {do}")
    for path in reversed(found):
        try:
            saved = read(path)
        except BadInput as error:
            if path == found[0]:
                raise BadInput(f"{error}: delete it to start from the beginning") from None
            say(f"note  {error}: the one before it is used")
            path.rename(f"{path}.damaged")  # it must not count as one of two to keep
            continue
        check_identity(path, saved["identity"], identity)
        say(f"note  going on after step {saved['step']} ({schedule}), from {path}")
        if (before := saved.get("schedule", schedule)) != schedule:
            say(f"note  another learning rate from here on: {schedule}, not {before}")
        return path
    return None
