"""The folder of a run: checkpoints to resume from, and best/, the model of the lowest loss.

A checkpoint is one file, written atomically. The last two are kept.
"""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from ladder import weights
from ladder.batches import Batches
from ladder.corpus import Corpus
from ladder.distributed import on_rank_0
from ladder.errors import UsageError
from ladder.files import lock, write_atomic
from ladder.run import NotFinite
from ladder.weights import BEST

# Exactly: people copy checkpoints, and "step_000002 (copy).pt" is theirs.
NAME = re.compile(r"step_(\d{6}|[1-9]\d{6,})\.pt")
OWN_FOLDER = re.compile(r"\d{8}-\d{6}-\d+")  # date, time and process, in checkpoints/
# Flags that must be equal when a run is resumed.
MUST_MATCH = ("model", "total_batch", "seq_len", "seed", "shuffle")
_locks = []  # the lock of --ckpt-dir, held until this process ends


@dataclass
class Job:
    """What rank 0 finds out for all ranks before the first step."""

    val_rows: int  # rows of T tokens to validate on; 0 for none
    identity: dict[str, str]  # what must match for a checkpoint to be resumed
    schedule: str  # what the learning rate of a step depends on, in words
    folder: Path | None  # where checkpoints go; None: none are kept
    checkpoint: Path | None  # the newest: the one to resume, then the last one saved
    best: float  # the lowest validation loss of a model in `folder`

    def save(self, run, step: int, **state):
        """Rank 0 saves a checkpoint of `state`. Raises NotFinite if a weight is NaN or infinite."""
        if not self.folder:
            return
        for name, w in state["model"].items():
            if not w.isfinite().all():
                raise NotFinite(f"{name} is not finite after step {step}: it is not saved")
        state = gather(state)
        state["model"]["lm_head.weight"] = state["model"][weights.WTE]  # tied: one in the file
        more = {"identity": self.identity, "schedule": self.schedule}
        # All ranks wait for rank 0: otherwise their next step would include that time.
        self.checkpoint = on_rank_0(lambda: save(self.folder, step, **state, **more))
        run.print0(f"note  saved {self.checkpoint}")

    def validated(self, run, step: int, model, val_loss: float):
        """Say the validation loss. Rank 0 saves the model for transformers if none was lower.

        What training starts from is not saved: best/ is better than that.
        """
        tokens = self.val_rows * run.args.seq_len
        run.print0(f"val   step={step} loss={val_loss:.6f} tokens={tokens}")
        lower = val_loss < self.best  # NaN is no lower
        if lower:
            self.best = val_loss
        if math.isfinite(val_loss):
            run.validation = {"val_loss": val_loss, "best_val_loss": self.best}
        if not self.folder or not lower or step == 0:
            return
        metadata = self.identity | {"step": str(step), "val_loss": str(val_loss)}
        state = gather(model.state_dict())
        folder = self.folder / BEST
        on_rank_0(lambda: weights.save(folder, model.config, state, metadata))
        run.print0(f"note  the lowest loss so far: saved {folder} (for ladder sample)")
        if not on_rank_0(lambda: weights.save_tokenizer(folder)):
            run.print0("note  it has no tokenizer: GPT-2's vocabulary is not here (docs/train.md)")


def open_job(args, text: Corpus, held_out: Corpus, print0: Callable) -> Job:
    """Find the folder of a run, and what to resume. For rank 0. Raises UsageError, OSError."""
    Batches(text, args.batch_size, args.seq_len)  # raises UsageError if the text is too short
    val_rows = 0
    if args.eval_every:
        wanted = max(1, args.val_tokens // args.seq_len)
        val_rows = min(wanted, Batches(held_out, 1, args.seq_len).rows_per_epoch)
    identity = {name: str(getattr(args, name)) for name in MUST_MATCH}
    identity["data"] = f"{text.name} {text.sha256[:12]}"
    # With other held-out text the text to train on may end elsewhere, and losses do not compare.
    identity["held-out text"] = f"{held_out.name} {held_out.sha256[:12]}"
    folder = Path(args.ckpt_dir or default_folder(args.resume))
    newest = None
    best = math.inf
    if args.ckpt_every or args.resume:
        newest = find_checkpoint(folder, args.resume, identity, schedule(args), print0)
        metadata = {}
        try:
            metadata = weights.read_metadata(folder / BEST)
        except UsageError as error:
            print0(f"note  {error}: the next validation replaces it")
        if metadata:
            check_identity(folder / BEST, metadata, identity)
            best = float(metadata["val_loss"])
    if args.resume and not newest:
        print0(f"note  no checkpoint in {folder}: starting from the beginning")
    if not args.ckpt_every:
        folder = None
    return Job(val_rows, identity, schedule(args), folder, newest, best)


def due(every: int, done: int, steps: int) -> bool:
    """True after each `every` steps and after the last one; never if `every` is 0."""
    return every > 0 and (done % every == 0 or done == steps)


def default_folder(resume: bool) -> Path:
    """A new folder in checkpoints/, or to resume the newest there."""
    folders = Path("checkpoints").glob("*")
    ours = [path for path in folders if OWN_FOLDER.fullmatch(path.name)]  # not copies of them
    if resume and ours:
        return max(ours)
    return Path(f"checkpoints/{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}")


def schedule(args) -> str:
    """What the learning rate of a step depends on, in words."""
    rates = f"from {args.max_lr:g} to {args.min_lr:g}"
    return f"{args.steps} steps, {args.warmup} of them warm-up, {rates}"


def checkpoints(folder: str) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem[5:]))


def save(folder: str, step: int, **state) -> Path:
    """Write step_NNNNNN.pt with `state`. Returns its path.

    The one before it is kept, older ones are deleted. Raises OSError.
    """
    path = Path(folder) / f"step_{step:06d}.pt"
    try:
        write_atomic(path, lambda file: torch.save({"step": step, **state}, file))
    except RuntimeError as error:
        # As torch.save closes the file, its own error hides the real one: a full disk, Ctrl-C.
        raise error.__context__ or error from None
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


def restore(path: Path, model, optimizer, scaler) -> dict:
    """Copy a checkpoint into model, optimizer and scaler. Return all that it holds.

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
    return saved


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
