"""The folder of a run: checkpoints to resume from, and best/, the model of the lowest loss.

A checkpoint is one file, written atomically. The last two are kept.
"""

import math
import os
import pickle
import re
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from zipfile import ZipFile

import torch
import torch.distributed as dist
from torch.amp import GradScaler
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.nn import Module
from torch.optim import Optimizer

from ladder import weights
from ladder.corpus import Corpus
from ladder.disk import lock, write_atomic
from ladder.distributed import on_rank_0
from ladder.errors import Damaged, UsageError, explain
from ladder.log import pairs_line, runs_by_time
from ladder.run import NotFinite, Run
from ladder.weights import BEST

# Exactly: people copy checkpoints, and "step_000002 (copy).pt" is theirs.
NAME = re.compile(r"step_(\d{6}|[1-9]\d{6,})\.pt")
# Flags that must be equal when a run is resumed.
MUST_MATCH = ("model", "total_batch", "seq_len", "seed", "shuffle", "val_tokens")
# Those that may be others, which a note says.
MAY_DIFFER = ("steps", "max_lr", "min_lr", "warmup", "beta2", "dtype")
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # on rank 0


class Checkpoints:
    """Where a run is saved, and what it goes on from. Every rank has one, rank 0 has the files.

    `newest` is the checkpoint to resume, then the last one saved; None if there is none. `folder`
    is None if nothing is to be saved.
    """

    def __init__(self, args: Namespace, text: Corpus, held_out: Corpus, run: Run):
        """Find what to resume. The folder is the run's alone until it ends.

        Raises UsageError, OSError.
        """
        self.print0 = run.print0
        self.flags = {}
        for name in MAY_DIFFER:
            value = getattr(args, name)
            self.flags[name] = value if isinstance(value, str) else round(value, 12)
        # What must match for a checkpoint to be resumed.
        self.settings = {name: str(getattr(args, name)) for name in MUST_MATCH}
        self.settings["data"] = f"{text.name} {text.sha256[:12]}"
        # With another one losses do not compare, and the text to train on may end elsewhere.
        self.settings["held-out text"] = f"{held_out.name} {held_out.sha256[:12]}"
        self.folder = None
        self.newest = None
        self.best_loss = math.inf  # the lowest validation loss of a model in `folder`
        if args.ckpt_every or args.resume:
            folder, self.newest, self.best_loss = on_rank_0(self._open, args, run)
            if args.ckpt_every:
                self.folder = folder

    def _open(self, args: Namespace, run: Run) -> tuple[Path, Path | None, float]:
        """The folder, the checkpoint to go on from, and the loss of the model in best/."""
        folder = Path(args.ckpt_dir or default_folder(args.resume))
        folder.mkdir(parents=True, exist_ok=True)
        run.closing.enter_context(lock(folder))
        for path in folder.glob("**/*.????????.tmp"):  # of a run that was killed: gigabytes
            path.unlink()
        if args.ckpt_every:  # what refuses files like checkpoints ends the run now, not after hours
            trial = folder / "trial"
            if not write_atomic(trial, b"trial"):
                self.print0(
                    f"note  {folder} is on a file system that flushes no file: a power cut may "
                    "cost the last checkpoints"
                )
            trial.unlink()
        if not args.resume:
            if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in ("", "0"):
                self.print0(
                    "note  torchrun's --max-restarts would begin at step 1 again: with --ckpt-dir "
                    "and --resume it goes on from the last checkpoint"
                )
            if checkpoints_in(folder) or (folder / BEST).exists():
                raise UsageError(
                    f"{folder} holds an earlier run: continue it with --resume, or choose another "
                    "--ckpt-dir"
                )
            return folder, None, math.inf
        path, saved = find_checkpoint(folder, self.print0)
        if path:
            self._check_settings(path, saved["settings"])
            self.print0(f"note  resumed after step {saved['step']}, from {path}")
            self._say_what_differs(saved.get("flags", {}))
        else:
            self.print0(f"note  no checkpoint in {folder}: starting from the beginning")
        return folder, path, self._best_of(folder / BEST)

    def _best_of(self, best: Path) -> float:
        """The validation loss of a model in best/. Raises UsageError if it is of another run."""
        try:
            metadata, _ = weights.read(best)
        except Damaged as error:  # it is an extra
            self.print0(f"note  {error}: the next model that is validated takes its place")
            return math.inf
        if not metadata:
            return math.inf
        self._check_settings(best, metadata)
        return float(metadata["val_loss"])

    def _check_settings(self, path: Path, saved: dict[str, str]):
        """Raise UsageError if `path` is of a run with another model, batch, seed or text."""
        for key, now in self.settings.items():
            before = str(saved.get(key))
            if before.split()[-1] != now.split()[-1]:  # of a text, the hash: it may have a new name
                raise UsageError(
                    f"{path} was saved with {key} {before}, this run has {now}: resume with the "
                    "same, or begin a new run in another --ckpt-dir, without --resume"
                )

    def _say_what_differs(self, saved: dict[str, str | float]):
        """Print a note of the flags that are not those of the checkpoint."""
        differ = ""
        for name, now in self.flags.items():
            if saved.get(name, now) != now:
                differ += f" --{name.replace('_', '-')} {now} (it had {saved[name]})"
        if differ:
            self.print0(f"note  the schedule or precision is not the checkpoint's:{differ}")

    def save(
        self,
        step: int,
        model: Module,
        optimizer: Optimizer,
        scaler: GradScaler,
        position: int,
    ):
        """Save a checkpoint. Raises NotFinite if a weight is NaN or infinite."""
        if not self.folder:
            return
        whole, moments = get_state_dict(model, optimizer, options=WHOLE)
        if whole:  # on rank 0
            whole[weights.HEAD] = whole[weights.WTE]  # tied: one in the file
        state = {
            "step": step,
            "model": whole,
            "optimizer": moments,
            "scaler": scaler.state_dict(),
            "position": position,
            "settings": self.settings,
            "flags": self.flags,
        }
        # All ranks wait for rank 0: otherwise their next step would include that time.
        self.newest = on_rank_0(write, self.folder, state, self.newest)
        self.print0(pairs_line("saved", {"step": step, "file": self.newest}))

    def keep_best(
        self, step: int, model: Module, val_loss: float, tokens: int
    ) -> tuple[dict[str, float], bool]:
        """Say the validation loss, and save the model to best/ if none was lower.

        What training starts from is not saved: best/ is better than that. Returns what RESULT has
        of the validation, and whether the disk has all that it should.
        """
        self.print0(f"val   step={step} loss={val_loss:.6f} tokens={tokens}")
        lower = val_loss < self.best_loss  # NaN is no lower
        if lower:
            self.best_loss = val_loss
        saved = True
        if self.folder and lower and step > 0:
            metadata = self.settings | {"step": str(step), "val_loss": str(val_loss)}
            state = get_model_state_dict(model, options=WHOLE)
            saved = on_rank_0(self._save_best, model.config, state, metadata)
        if not math.isfinite(val_loss):
            return {}, saved
        return {"val_loss": val_loss, "best_val_loss": self.best_loss}, saved

    def _save_best(self, config: object, state: dict, metadata: dict[str, str]) -> bool:
        best = self.folder / BEST
        is_first = not (best / "config.json").exists()
        try:
            weights.save(best, config, state, metadata)
        except OSError as error:  # the disk may have room for the next one
            self.print0(f"note  {best} is not saved: {error.strerror}; the run goes on")
            return False
        self.print0(f"note  the lowest loss so far: saved {best} (for ladder sample)")
        if is_first:
            try:
                weights.save_tokenizer(best, config.block_size)
            except Exception as error:  # it is an extra: no trouble with it ends the run
                self.print0(f"note  it has no tokenizer (docs/train.md): {error}")
        return True


def due(every: int, done: int, steps: int) -> bool:
    """True after each `every` steps and after the last one; never if `every` is 0."""
    return every > 0 and (done % every == 0 or done == steps)


def default_folder(resume: bool) -> Path:
    """A new folder in checkpoints/, or to resume that of the newest run."""
    runs = [*runs_by_time().values()]
    if resume and runs:
        return runs[-1]
    return Path("checkpoints", f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{os.getpid()}")


def checkpoints_in(folder: Path) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first. Raises OSError."""
    # Not glob(), which finds nothing in a folder that may not be read.
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """The step of a checkpoint, by its name."""
    return int(path.stem[5:])


def find_checkpoint(folder: Path, print0: Callable) -> tuple[Path | None, dict]:
    """The newest checkpoint that is sound, and what it holds. Raises UsageError, OSError."""
    paths = checkpoints_in(folder)
    for path in reversed(paths):
        try:
            check_sums(path)
            return path, read(path)
        except Damaged as error:
            print0(f"note  {error}: it stays where it is, the one before it is tried")
    if paths:
        raise UsageError(f"no checkpoint in {folder} is sound: start again in another --ckpt-dir")
    return None, {}


def check_sums(path: Path):
    """Raise Damaged if the sums in a checkpoint, a zip file, are wrong. A second a GB."""
    try:
        with ZipFile(path) as file:
            wrong = file.testzip()
    except (OSError, MemoryError):  # it could not be read
        raise
    except Exception as error:  # of many kinds
        wrong = error
    if wrong:
        raise Damaged(f"{path} is damaged ({wrong})")


def write(folder: Path, state: dict, before: Path | None) -> Path:
    """Write step_NNNNNN.pt with `state`, atomically. Returns its path.

    The sound one `before` it is kept, those that are older are deleted. Raises OSError; NotFinite
    if a weight is NaN or infinite.
    """
    for name, w in state["model"].items():
        if not w.isfinite().all():
            raise NotFinite(f"{name} is not finite after step {state['step']}: it is not saved")
    path = folder / f"step_{state['step']:06d}.pt"
    write_atomic(path, lambda file: torch.save(state, file))
    for old in checkpoints_in(folder):
        if step_of(old) < step_of(before or path):
            old.unlink()
    return path


def read(path: Path) -> dict:
    """Return what `write` wrote. Its tensors are a memory map: a rank pays only for those it uses.

    Where a folder cannot be mapped, the file is read whole. Raises Damaged if somebody else wrote
    it; UsageError, OSError if it cannot be read.
    """
    how = dict(map_location="cpu", weights_only=True)
    try:
        try:
            saved = torch.load(path, mmap=True, **how)
        except RuntimeError:
            saved = torch.load(path, **how)
    except pickle.UnpicklingError:  # it has more than tensors and numbers
        saved = {}
    except RuntimeError as error:
        raise UsageError(f"{path} cannot be read: {explain(error) or error}") from error
    if "settings" not in saved:
        raise Damaged(f"{path} is not a checkpoint of train.py")
    return saved


def restore(
    path: Path,
    model: Module,
    optimizer: Optimizer,
    scaler: GradScaler,
) -> tuple[int, int]:
    """Load a checkpoint into model, optimizer and scaler. Return its step and its position."""
    saved = read(path)
    for group in saved["optimizer"]["param_groups"]:
        group["betas"] = optimizer.defaults["betas"]  # of this run: --beta2
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=dist.is_initialized())
    set_state_dict(
        model,
        optimizer,
        model_state_dict=saved["model"],
        optim_state_dict=saved["optimizer"],
        options=options,
    )
    # Our own tensors, not the file's. Fused kernels do not check sizes: they would write past the
    # end of a smaller tensor.
    for p, moments in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            moments[name] = torch.empty_like(p).copy_(moments[name])
    if scaler.is_enabled() and saved["scaler"]:  # empty if the run was not in float16
        scaler.load_state_dict(saved["scaler"])
    return saved["step"], saved["position"]
