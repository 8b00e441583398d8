"""The ranks of ddp_run.py and fsdp_run.py: flags, how they connect, what rank 0 does for all."""

import math
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
import torch.distributed as dist

from ladder import checkpoint, weights
from ladder.batches import Batches
from ladder.cli import MODELS, count, parse_args, positive
from ladder.corpus import Corpus, load_splits
from ladder.errors import UsageError, exit_with
from ladder.files import commit
from ladder.machine import half_precision
from ladder.memory import ddp_batch, default_batch_size, memory_of
from ladder.run import NotFinite

# torchrun sets these and what follows for each process; a cluster's shell may leave some of them.
DISTRIBUTED = all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
RANK = int(os.environ["RANK"]) if DISTRIBUTED else 0
WORLD = int(os.environ["WORLD_SIZE"]) if DISTRIBUTED else 1
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
LOCAL_WORLD = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
OWN_FOLDER = re.compile(r"\d{8}-\d{6}-\d+")  # date, time and process, in checkpoints/
# Flags that must be equal when a run is resumed.
MUST_MATCH = ("model", "total_batch", "seq_len", "seed", "shuffle")


@dataclass
class Job:
    """What rank 0 finds out for all ranks before the first step."""

    micro_steps: int  # per rank and optimizer step
    val_rows: int  # rows of T tokens to validate on; 0 for none
    identity: dict[str, str]  # what must match for a checkpoint to be resumed
    folder: Path | None  # where checkpoints go; None: none are kept
    checkpoint: Path | None  # the newest: the one to resume, then the last one saved
    best: float  # the lowest validation loss of a model in `folder`

    def save(self, run, step: int, model, optimizer, scaler, position: int):
        """Rank 0 saves a checkpoint. Raises NotFinite if a weight is NaN or infinite."""
        if not self.folder:
            return
        for name, w in model.state_dict().items():
            if not w.isfinite().all():
                raise NotFinite(f"{name} is not finite after step {step}: it is not saved")
        state = {
            "model": checkpoint.gather(model.state_dict()),
            "optimizer": checkpoint.gather(optimizer.state_dict()),
            "scaler": scaler.state_dict(),
            "position": position,
            "identity": self.identity,
            "schedule": schedule(run.args),
        }
        state["model"]["lm_head.weight"] = state["model"][weights.WTE]  # tied: one in the file
        # All ranks wait for rank 0: otherwise their next step would include that time.
        self.checkpoint = on_rank_0(lambda: checkpoint.save(self.folder, step, **state))
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
        state = checkpoint.gather(model.state_dict())
        folder = self.folder / weights.BEST
        on_rank_0(lambda: weights.save(folder, model.config, state, metadata))
        run.print0(f"note  the lowest loss so far: saved {folder} (for ladder sample)")
        if not on_rank_0(lambda: weights.save_tokenizer(folder)):
            run.print0("note  it has no tokenizer: GPT-2's vocabulary is not here (docs/train.md)")

    def say_stopped(self, run, step: int, number: float):
        """Say which signal stopped the run after `step`, and how to go on."""
        kept = "no checkpoint is kept"
        if self.checkpoint:
            kept = f"{self.checkpoint} is kept, the same command with --resume goes on"
        run.print0(f"note  {signal.Signals(int(number)).name}: stopped after step {step}; {kept}")


def launch(train: Callable, doc: str, argv: list[str] | None, sharded: bool = False):
    """Return train(args) of this process, or of this rank if torchrun started several.

    If a rank exits with an error, torchrun ends the others.
    """
    try:
        if DISTRIBUTED:
            connect()
        args = on_rank_0(lambda: parse(doc, argv, sharded))
        if DISTRIBUTED and args.device.type == "cuda":
            args.device = torch.device("cuda", LOCAL_RANK)
        result = train(args)
    except SystemExit as end:
        if DISTRIBUTED:
            # os._exit skips Python's shutdown: gloo's threads would abort there, hiding the status.
            sys.stdout.flush()
            os._exit(end.code or 0)
        disconnect()
        raise
    disconnect()
    return result


def backends() -> str:
    """The backend of each kind of device: gloo between CPUs, NCCL between GPUs.

    Both are named, because PyTorch 2.15 sets up only the GPU's otherwise. Windows has no NCCL.
    """
    if torch.cuda.is_available() and dist.is_nccl_available():
        return "cpu:gloo,cuda:nccl"
    return "gloo"


def connect():
    """Connect all ranks. Returns when all have joined."""
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts the ranks of a node, with the addresses of those
        # that died. (Several nodes count restarts separately: see docs/train.md.)
        store = dist.PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group(backends(), store=store, rank=rank, world_size=world)


def disconnect():
    """Undo connect(), or what mesh() did without torchrun."""
    if dist.is_initialized():
        dist.destroy_process_group()


def mesh(device: torch.device):
    """The device mesh of all ranks for fully_shard; without torchrun, of this process alone."""
    if not dist.is_initialized():
        dist.init_process_group(backends(), store=dist.HashStore(), rank=0, world_size=1)
    return dist.init_device_mesh(device.type, (WORLD,))


def on_rank_0(function: Callable):
    """Return on all ranks what function() returns on rank 0. If it raises, the others exit with 0.

    Exit 0, so that rank 0 can print its error: if another rank failed, torchrun would end rank 0.
    """
    if not DISTRIBUTED:
        return function()
    message = [None]  # stays None if function() raises
    try:
        if RANK == 0:
            message = [{"returned": function()}]
    finally:
        dist.broadcast_object_list(message)
    if message[0] is None:
        raise SystemExit(0)
    return message[0]["returned"]


def all_gather(*values: float) -> list[tuple[float, ...]]:
    """Return one tuple for each value: what it is on rank 0, on rank 1, and so on."""
    rows = [values]
    if DISTRIBUTED:
        rows = [None] * WORLD
        dist.all_gather_object(rows, values)
    return list(zip(*rows, strict=True))


def due(every: int, done: int, steps: int) -> bool:
    """True after each `every` steps and after the last one; never if `every` is 0."""
    return every > 0 and (done % every == 0 or done == steps)


def add_arguments(parser):
    """The flags of ddp_run.py beyond those of every script."""
    parser.set_defaults(batch_size=0)  # parse() computes it: it depends on other flags
    add = parser.add_argument
    add(
        "--steps",
        type=count,
        help="optimizer steps (default: CUDA 50, else 20); 0: validate and end",
    )
    add(
        "--total-batch",
        type=positive,
        help="tokens a step, of all ranks (default: CUDA 524288, else 4096)",
    )
    add("--max-lr", type=float, default=6e-4, help="after the warm-up (default: 6e-4)")
    add("--min-lr", type=float, help="at the last step (default: a tenth of --max-lr)")
    add("--warmup", type=count, help="steps (default: a fifth of --steps, at most 250)")
    add(
        "--dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        help="default: auto: as rung 03, by the device",
    )
    add("--no-compile", action="store_true", help="leave torch.compile out")
    add(
        "--eval-every",
        type=count,
        default=100,
        help="steps; 0: never, and no best/ (default: 100)",
    )
    add(
        "--val-tokens",
        type=positive,
        help="held-out tokens of a validation (default: CUDA 10485760, else 4096)",
    )
    add(
        "--ckpt-every",
        type=count,
        default=500,
        help="steps, and at the end; 0: never (default: 500)",
    )
    add("--ckpt-dir", help="default: a new folder in checkpoints/")
    add(
        "--resume",
        action="store_true",
        help="from the newest in --ckpt-dir, or in the newest folder of checkpoints/",
    )
    add(
        "--init",
        help="a folder that transformers loads, or one of checkpoints: its best/ (default: none)",
    )


def parse(doc: str, argv: list[str] | None, sharded: bool = False):
    """Parse the flags and fill in defaults. Exits with status 2 if they are invalid."""
    args = parse_args(doc, argv, add_arguments, longest=math.inf)
    on_gpu = args.device.type == "cuda"
    gpus = torch.cuda.device_count()
    if on_gpu and gpus < LOCAL_WORLD:
        found = f"torchrun started {LOCAL_WORLD} processes, found {gpus} CUDA device(s)"
        exit_with(f"{found}: --nproc_per_node={gpus}, or train on --device cpu")
    args.total_batch = args.total_batch or (524288 if on_gpu else 4096)
    args.val_tokens = args.val_tokens or (10485760 if on_gpu else 4096)
    if args.warmup is None:
        # A fifth, as in rung 09. A long run needs no such share: at larger learning rates the AdamW
        # baseline of modded-nanogpt warms up in 250 of 9,536 steps.
        args.warmup = min(max(1, args.steps // 5), 250)
    if args.steps == 0:
        args.ckpt_every = 0  # nothing is trained
    if args.min_lr is None:
        args.min_lr = args.max_lr / 10
    if args.dtype == "auto":
        args.dtype = str(half_precision(args.device)).removeprefix("torch.")
    if not args.batch_size:
        args.batch_size = default_batch(args, sharded)
    if not args.ckpt_dir:
        args.ckpt_dir = Path(f"checkpoints/{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}")
        folders = Path("checkpoints").glob("*")
        ours = [path for path in folders if OWN_FOLDER.fullmatch(path.name)]  # not copies of them
        if args.resume and ours:
            args.ckpt_dir = max(ours)
    return args


def default_batch(args, sharded: bool) -> int:
    """The largest power of two that fits a GPU and divides its rows of a step.

    On a CPU, in FP32 or not compiled, B is the default of the other scripts.
    """
    size = MODELS[args.model]
    if args.device.type != "cuda" or args.no_compile or args.dtype == "float32":
        return default_batch_size(args.device, size, args.seq_len)
    shards = WORLD if sharded else None
    B = max(1, ddp_batch(memory_of(args.device), size, args.seq_len, shards))
    rows_of_a_step = args.total_batch // (WORLD * args.seq_len)
    while rows_of_a_step % B:
        B //= 2
    return B


def prepare(args, print0) -> tuple[Corpus, Corpus, Job]:
    """Read text and held-out text on every rank; check them, the flags and the checkpoints.

    Raises UsageError.
    """
    splits = []
    # Rank 0 is the first: if the text is wrong, it alone says so.
    on_rank_0(lambda: splits.extend(load_splits(args.data, print0)))
    if RANK:
        splits.extend(load_splits(args.data, print0))
    text, held_out = splits
    here = f"commit {commit()}, torch {torch.__version__}, data {text.sha256[:12]}"
    there = on_rank_0(lambda: here)
    if here != there:
        raise UsageError(f"this rank has {here}; rank 0 {there}: give every machine the same")
    return text, held_out, on_rank_0(lambda: _plan(args, text, held_out, print0))


def schedule(args) -> str:
    """What the learning rate of a step depends on, in words."""
    rates = f"from {args.max_lr:g} to {args.min_lr:g}"
    return f"{args.steps} steps, {args.warmup} of them warm-up, {rates}"


def _plan(args, text: Corpus, held_out: Corpus, print0) -> Job:
    """What all ranks are to do. Raises UsageError."""
    micro_steps = _micro_steps(args, print0)
    Batches(text, args.batch_size, args.seq_len)  # raises UsageError if the text is too short
    val_rows = 0
    if args.eval_every:
        wanted = max(1, args.val_tokens // args.seq_len)
        val_rows = min(wanted, Batches(held_out, 1, args.seq_len).rows_per_epoch)
    identity = {name: str(getattr(args, name)) for name in MUST_MATCH}
    identity["data"] = f"{text.name} {text.sha256[:12]}"
    # With other held-out text the text to train on may end elsewhere, and losses do not compare.
    identity["held-out text"] = f"{held_out.name} {held_out.sha256[:12]}"
    folder = Path(args.ckpt_dir)
    newest = None
    best = math.inf
    if args.ckpt_every or args.resume:
        newest = checkpoint.find_checkpoint(folder, args.resume, identity, schedule(args), print0)
        metadata = {}
        try:
            metadata = weights.read_metadata(folder / weights.BEST)
        except UsageError as error:
            print0(f"note  {error}: the next validation replaces it")
        if metadata:
            checkpoint.check_identity(folder / weights.BEST, metadata, identity)
            best = float(metadata["val_loss"])
    if args.resume and not newest:
        print0(f"note  no checkpoint in {folder}: starting from the beginning")
    if not args.ckpt_every:
        folder = None
    return Job(micro_steps, val_rows, identity, folder, newest, best)


def _micro_steps(args, print0) -> int:
    """How many batches each rank adds up in a step. Raises UsageError if they do not fill it."""
    tokens = WORLD * args.batch_size * args.seq_len
    micro_steps, rest = divmod(args.total_batch, tokens)
    sizes = f"world size {WORLD} x B={args.batch_size} x T={args.seq_len}"
    if rest:
        wrong = f"--total-batch {args.total_batch} is not a multiple of {tokens} tokens"
        raise UsageError(f"{wrong} ({sizes}); the next one is {(micro_steps + 1) * tokens}")
    print0(f"note  a step is {args.total_batch} tokens: {micro_steps} micro-steps x {sizes}")
    return micro_steps
