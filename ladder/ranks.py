"""The ranks of ddp_run.py and fsdp_run.py: flags, how they connect, what rank 0 does for all."""

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
import torch.distributed as dist

from ladder import checkpoint, weights
from ladder.batches import Batches
from ladder.cli import above_zero, count, parse_args, path, positive
from ladder.corpus import Corpus, load_splits
from ladder.errors import BadInput, refuse
from ladder.files import commit
from ladder.machine import half_precision
from ladder.run import NotFinite

DISTRIBUTED = "RANK" in os.environ  # torchrun sets these for each process
_env = os.environ if DISTRIBUTED else {}
RANK, WORLD = int(_env.get("RANK", 0)), int(_env.get("WORLD_SIZE", 1))
LOCAL_RANK, LOCAL_WORLD = int(_env.get("LOCAL_RANK", 0)), int(_env.get("LOCAL_WORLD_SIZE", 1))
# Flags that must be equal when a run is resumed.
MUST_MATCH = ("model", "total_batch", "seq_len", "seed", "shuffle")


@dataclass
class Job:
    """What rank 0 found out for all ranks before the first step, and the text that each reads."""

    text: Corpus
    held_out: Corpus
    micro_steps: int  # per rank and optimizer step
    val_rows: int  # rows of T tokens to validate on; 0 for none
    identity: dict[str, str]  # what must match for a checkpoint to be resumed
    folder: Path | None  # where checkpoints go; None: none are kept
    checkpoint: Path | None  # the newest: the one to resume, then the last one saved
    best: float  # the lowest validation loss of a model in `folder`

    def save(self, run, step: int, model, optimizer, scaler, **state) -> None:
        """Rank 0 saves a checkpoint. Raises NotFinite if a weight is NaN or infinite."""
        if not self.folder:
            return
        if bad := [name for name, w in model.state_dict().items() if not w.isfinite().all()]:
            raise NotFinite(f"{bad[0]} is not finite after step {step}: it is not saved")
        parts = {"model": model, "optimizer": optimizer, "scaler": scaler}
        state |= {name: checkpoint.gather(part.state_dict()) for name, part in parts.items()}
        state["model"]["lm_head.weight"] = state["model"][weights.WTE]  # tied: one in the file
        state |= {"identity": self.identity, "schedule": schedule(run.args)}
        if path := self._on_disk(run, checkpoint.save, self.folder, step, **state):
            self.checkpoint = path
            run.say(f"note  saved {path}")
        if step == run.args.steps and math.isfinite(self.best):
            run.say(f"note  and now: ladder sample {self.folder}")

    def save_best(self, run, step: int, model, val_loss: float) -> None:
        """Rank 0 saves the model for transformers, if no validation loss was lower."""
        if self.folder and val_loss < self.best:
            facts = self.identity | {"step": str(step), "val_loss": str(val_loss)}
            own = model.config, checkpoint.gather(model.state_dict()), facts
            if path := self._on_disk(run, weights.save, self.folder / weights.BEST, *own):
                self.best = val_loss
                run.say(f"note  the lowest loss so far: saved {path}")

    def _on_disk(self, run, save: Callable, *args, **state) -> Path | None:
        """save(...) on rank 0, and all wait: else their next step would take as long.

        If the disk is full the run goes on, and ends with status 2.
        """

        def saved():
            try:
                return save(*args, **state)
            except OSError as error:
                run.lost, why = True, f"cannot write into {self.folder}: {error.strerror}"
                run.say(f"error {why}; the run goes on, and tries again next time", sys.stderr)

        return on_rank_0(saved)

    @property
    def kept(self) -> str:
        """What a run leaves that stops before its last step."""
        found = f"{self.checkpoint} is kept, the same command with --resume goes on"
        return found if self.checkpoint else "no checkpoint is kept"


def launch(train: Callable, doc: str, argv: list[str] | None):
    """train(args) on this rank, once it is connected to the others that torchrun started.

    Returns what train returns. If this rank exits with an error, torchrun ends the others.
    """
    if not DISTRIBUTED:
        return train(parse(doc, argv))
    try:
        connect()
        args = on_rank_0(parse, doc, argv)
        if args.device.type == "cuda":
            args.device = torch.device("cuda", LOCAL_RANK)
        result = train(args)
    except SystemExit as end:
        # os._exit skips Python's shutdown, where gloo's threads would abort and hide the status.
        sys.stdout.flush()
        os._exit(end.code or 0)
    dist.destroy_process_group()
    return result


def connect() -> None:
    """Connect all ranks, with NCCL between GPUs and gloo between CPUs. Returns when all joined."""
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts the ranks of a node, with the addresses of those
        # that died. (Several nodes count restarts separately: see docs/cluster.md.)
        store = dist.PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    # Both named, because PyTorch 2.15 sets up the GPU's alone. For Windows there is no NCCL.
    nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)


def mesh(device: torch.device):
    """All ranks, for fully_shard; without torchrun this process alone."""
    if not dist.is_initialized():
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    return dist.init_device_mesh(device.type, (WORLD,))


def on_rank_0(function: Callable, *args, **more):
    """function(*args, **more) of rank 0, on all ranks; if it raises, the others exit with 0.

    Not with an error: torchrun would end rank 0 at once, before it has said why.
    """
    told = [None]
    try:
        if RANK == 0:
            told = [(function(*args, **more),)]
    finally:
        if DISTRIBUTED:
            dist.broadcast_object_list(told)
    if told[0] is None:
        raise SystemExit(0)
    return told[0][0]


def reduced(value: float, op) -> float:
    """Sum (dist.ReduceOp.SUM) or maximum (MAX) of a number over all ranks."""
    number = torch.tensor(value, dtype=torch.float64)
    if DISTRIBUTED:
        dist.all_reduce(number, op)
    return number.item()


def add_arguments(parser) -> None:
    """The flags of ddp_run.py beyond those of every script."""
    add = parser.add_argument
    words = "a step, of all ranks (default: CUDA 524288, else 4096)"
    add("--total-batch", type=positive, metavar="TOKENS", help=words)
    add("--max-lr", type=above_zero, default=6e-4, help="after the warm-up (default: 6e-4)")
    add("--warmup", type=count, metavar="STEPS", help="(default: a fifth of --steps)")
    add("--shuffle", type=count, metavar="SEED", help="reorder rows each epoch (default: do not)")
    types = dict(choices=("auto", "bfloat16", "float16", "float32"), default="auto")
    add("--dtype", **types, help="default: auto: bfloat16, or float16 where that is emulated")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    every = dict(type=count, metavar="STEPS")
    add("--eval-every", **every, default=100, help="0: never, and no best/ (default: 100)")
    add("--ckpt-every", **every, default=500, help="and at the end; 0: never (default: 500)")
    add("--ckpt-dir", type=path, help="default: a new folder in checkpoints/")
    newest = "from the newest in --ckpt-dir, or in the newest folder of checkpoints/"
    add("--resume", action="store_true", help=newest)
    model = "a folder that transformers loads, or one of checkpoints: its best/ (default: none)"
    add("--init", type=path, metavar="FOLDER", help=model)


def parse(doc: str, argv: list[str] | None):
    """Parse the flags and fill in defaults. Exits with status 2 if they are invalid."""
    args = parse_args(doc, argv, add_arguments, longest=math.inf)
    on_gpu, gpus = args.device.type == "cuda", torch.cuda.device_count()
    args.total_batch = args.total_batch or (524288 if on_gpu else 4096)
    if args.warmup is None:
        args.warmup = max(1, args.steps // 5)
    if on_gpu and gpus < LOCAL_WORLD:
        found = f"torchrun started {LOCAL_WORLD} processes, found {gpus} CUDA device(s)"
        refuse(f"{found}: --nproc_per_node={gpus}, or train on --device cpu")
    if args.dtype == "auto":
        args.dtype = str(half_precision(args.device)).removeprefix("torch.")
    if not args.ckpt_dir:
        own = Path(f"checkpoints/{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}")
        earlier = Path("checkpoints").glob("[0-9]*-[0-9]*") if args.resume else ()
        args.ckpt_dir = max(earlier, default=own)
    return args


def prepare(args, say) -> Job:
    """Read the text on every rank; check it, the flags and the checkpoints. Raises BadInput."""
    splits = []
    on_rank_0(lambda: splits.extend(load_splits(args.data, say)))  # alone it says what is wrong
    text, held_out = splits or load_splits(args.data, say)
    here = f"commit {commit()}, torch {torch.__version__}, data {text.sha256[:12]}"
    if here != (there := on_rank_0(lambda: here)):
        raise BadInput(f"this rank has {here}; rank 0 {there}: give every machine the same")
    return Job(text, held_out, **on_rank_0(_plan, args, text, held_out, say))


def schedule(args) -> str:
    """What the learning rate of a step depends on, in words."""
    return f"{args.steps} steps, {args.warmup} of them warm-up, at most {args.max_lr:g}"


def _plan(args, text: Corpus, held_out: Corpus, say) -> dict:
    """The fields of Job except the texts. Raises BadInput."""
    B, T, folder = args.batch_size, args.seq_len, Path(args.ckpt_dir)
    micro_steps, odd = divmod(args.total_batch, WORLD * B * T)
    sizes = f"{WORLD} rank{'s' * (WORLD > 1)} x B={B} x T={T}"
    if odd:
        near = (micro_steps + 1) * WORLD * B * T
        wrong = f"--total-batch {args.total_batch} is not a multiple of {WORLD * B * T} tokens"
        raise BadInput(f"{wrong} ({sizes}); the next one is {near}")
    say(f"note  a step is {args.total_batch} tokens: {micro_steps} micro-steps x {sizes}")
    Batches(text, B, T)  # raises BadInput if the text is too short
    val_rows = 0
    if args.eval_every:
        val_rows = min(args.total_batch // T, Batches(held_out, 1, T).rows_per_epoch)
    # With other held-out text the text to train on may end elsewhere, and losses do not compare.
    texts = {"data": text, "held-out text": held_out}
    identity = {key: f"{corpus.name} {corpus.sha256[:12]}" for key, corpus in texts.items()}
    identity |= {name: str(getattr(args, name)) for name in MUST_MATCH}
    found, best = None, math.inf
    if args.ckpt_every or args.resume:
        found = checkpoint.choose(folder, args.resume, identity, schedule(args), say)
        if facts := weights.read_facts(folder / weights.BEST):
            checkpoint.check_identity(folder / weights.BEST, facts, identity)
            best = float(facts["val_loss"])
    if args.resume and not found:
        say(f"note  no checkpoint in {folder}: starting from the beginning")
    job = dict(micro_steps=micro_steps, val_rows=val_rows, identity=identity)
    return job | dict(folder=folder if args.ckpt_every else None, checkpoint=found, best=best)
