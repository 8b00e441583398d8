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
from zipfile import is_zipfile

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from ladder import weights
from ladder.batches import Batches
from ladder.corpus import Corpus
from ladder.distributed import on_rank_0
from ladder.errors import Damaged, UsageError, explain
from ladder.files import lock, require_readable, write_atomic
from ladder.run import NotFinite
from ladder.weights import BEST

# Exactly: people copy checkpoints, and "step_000002 (copy).pt" is theirs.
NAME = re.compile(r"step_(\d{6}|[1-9]\d{6,})\.pt")
OWN_FOLDER = re.compile(r"\d{8}-\d{6}-\d+")  # date, time and process, in checkpoints/
# Flags that must be equal when a run is resumed.
MUST_MATCH = ("model", "total_batch", "seq_len", "seed", "shuffle")
VAL_TOKENS = "--val-tokens"  # of the identity too, but what older versions saved lacks it
# What a checkpoint has at least.
HELD = {"step", "model", "optimizer", "scaler", "position", "identity", "schedule"}
_locks = []  # the lock of --ckpt-dir, held until this process ends


@dataclass
class Job:
    """What rank 0 finds out for all ranks before the first step."""

    val_rows: int  # rows of T tokens to validate on; 0 for none
    identity: dict[str, str]  # what must match for a checkpoint to be resumed
    schedule: str  # what schedule() says
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
        metadata = {"step": str(step), "val_loss": str(val_loss)} | self.identity
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
    identity[VAL_TOKENS] = str(args.val_tokens)
    job = Job(val_rows, identity, schedule(args), folder=None, checkpoint=None, best=math.inf)
    if not args.ckpt_every and not args.resume:
        return job
    folder = Path(args.ckpt_dir or default_folder(args.resume))
    lock_until_end(folder)
    if args.resume:
        job.checkpoint = _resume(args, folder, job, print0)
        job.best = _best_loss(folder, job, print0)
    elif checkpoints(folder) or (folder / BEST).exists():
        do = "continue it with --resume, delete it, or choose another --ckpt-dir"
        raise UsageError(f"{folder} holds an earlier run: {do}")
    if args.ckpt_every:
        job.folder = folder
    return job


def _resume(args, folder: Path, job: Job, print0: Callable) -> Path | None:
    """Find the checkpoint to go on from, or None, and say so. Raises UsageError."""
    path, saved = find_checkpoint(folder, print0)
    if not path:
        where = args.ckpt_dir or "checkpoints"
        print0(f"note  no checkpoint in {where}: starting from the beginning")
        return None
    check_identity(path, saved["identity"], job.identity)
    step, before = saved["step"], saved["schedule"]
    print0(f"note  resumed after step {step}, from {path}")
    if step < args.steps and before != job.schedule:
        print0(f"note  another schedule from here on: {job.schedule}, not {before}")
    return path


def _best_loss(folder: Path, job: Job, print0: Callable) -> float:
    """The validation loss of the model in best/; infinite if the next one is to replace it."""
    best = folder / BEST
    try:
        metadata = weights.read_metadata(best)
    except Damaged as error:
        print0(f"note  {error}: the next validation replaces it")
        return math.inf
    if not metadata:
        return math.inf
    if not job.checkpoint:  # it was stopped before its first, and begins again
        print0(f"note  {best} has no checkpoint beside it: the next validation replaces it")
        return math.inf
    check_identity(best, metadata, job.identity)
    return float(metadata["val_loss"])


def due(every: int, done: int, steps: int) -> bool:
    """True after each `every` steps and after the last one; never if `every` is 0."""
    return every > 0 and (done % every == 0 or done == steps)


def default_folder(resume: bool) -> Path:
    """A new folder in checkpoints/, or to resume the one with the checkpoint saved last."""
    root = Path("checkpoints")
    saved = {}
    if resume and root.exists():
        for folder in root.iterdir():
            if OWN_FOLDER.fullmatch(folder.name):  # not a copy of one
                for path in checkpoints(folder):
                    # By what is in it: names have the local time, which time zones and summer shift
                    saved[path.stat().st_mtime_ns] = folder
    if saved:
        return saved[max(saved)]
    return root / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"


def schedule(args) -> str:
    """What the update of a step depends on, beside the gradient, in words."""
    rates = f"from {args.max_lr:g} to {args.min_lr:g}"
    return f"{args.steps} steps, {args.warmup} of them warm-up, {rates}, beta2 {args.beta2:g}"


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first. Raises OSError."""
    # Not glob(), which finds nothing in a folder that may not be read.
    found = [path for path in Path(folder).iterdir() if NAME.fullmatch(path.name)]
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

    Raises Damaged, or UsageError if the file cannot be read or somebody else wrote it.
    """
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many kinds, also where the disk fails
        require_readable(path)
        if explain(error) and not isinstance(error, OSError):  # out of memory
            raise
        if not is_zipfile(path):
            raise Damaged(f"{path} is damaged") from None
        saved = None  # whole, but torch.load does not take what is in it
    if not isinstance(saved, dict) or not saved.keys() >= HELD:
        move = "move it away, or choose another --ckpt-dir"
        raise UsageError(f"{path} is not a checkpoint of ddp_run.py: {move}")
    return saved


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
        if key == VAL_TOKENS and key not in saved:
            continue
        before = str(saved.get(key))
        if before.split()[-1] != now.split()[-1]:  # of a text, the hash: it may have a new name
            raise UsageError(f"{path} was saved with {key} {before}, this run has {now}")


def lock_until_end(folder: Path):
    """Make `folder` and lock it until this process ends. Raises UsageError, OSError."""
    _locks.clear()  # of an earlier run in this process
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:  # where no folder can be made, as in /proc
        raise UsageError(f"cannot make the folder {folder}: choose another --ckpt-dir") from None
    _locks.append(lock(folder))


def find_checkpoint(folder: Path, print0: Callable) -> tuple[Path, dict] | tuple[None, None]:
    """The newest checkpoint that is not damaged, and what it holds. Raises UsageError, OSError."""
    paths = checkpoints(folder)
    for path in reversed(paths):
        try:
            return path, read(path)
        except Damaged as error:
            if path == paths[0]:
                raise UsageError(f"{error}: move it away to start from the beginning") from None
            print0(f"note  {error}: the one before it is used")
            path.rename(f"{path}.damaged")  # it must not count as one of two to keep
    return None, None
