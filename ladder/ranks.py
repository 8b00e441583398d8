"""The processes of ddp_run.py: who they are, where they meet, and what one of them does for all."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from ladder import checkpoint
from ladder.batches import Batches
from ladder.cli import count, parse_args, positive
from ladder.corpus import Corpus, load_splits
from ladder.errors import BadInput

# What torchrun tells each process; without it there is one, on one device.
DISTRIBUTED = "RANK" in os.environ
RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, RESTARTS = (
    int(os.environ.get(name, default))
    for name, default in (
        ("RANK", 0),
        ("WORLD_SIZE", 1),
        ("LOCAL_RANK", 0),
        ("LOCAL_WORLD_SIZE", 1),
        ("TORCHELASTIC_RESTART_COUNT", 0),
    )
)
# Flags that have to be the same where a run is resumed, and those that may differ, with a note.
MUST_AGREE = ("model", "total_batch", "seq_len", "seed", "shuffle")
MAY_CHANGE = ("steps", "max_lr", "warmup", "dtype")


@dataclass
class Job:
    """What all ranks agree on before the first step, and the text that each reads."""

    text: Corpus
    held_out: Corpus
    micro_steps: int  # of each rank, for one optimizer step
    val_rows: int  # rows of T tokens to validate on; 0 for none
    identity: dict  # what must match for a checkpoint to be resumed
    checkpoint: Path | None  # the one to resume


def together(train: Callable, doc: str, argv: list[str] | None):
    """train(args) on every rank that torchrun started, or on this process alone.

    `doc` is the script's docstring, for --help. A rank that fails ends with its own exit status,
    and torchrun ends the others.
    """
    if not DISTRIBUTED:
        return train(parse(doc, argv))
    meet()
    try:
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


def meet() -> None:
    """Wait until all ranks are there: NCCL between GPUs where there is one, else gloo."""
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts the ranks of a node: those that died left
        # their addresses there. (Several nodes count restarts each for itself; see README.md.)
        store = dist.PrefixStore(f"start {RESTARTS}", store)
    # A PyTorch for Windows has no NCCL; its gloo goes between GPUs too.
    nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)


def on_rank_0(function: Callable, *args, **options):
    """Call function(*args, **options) on rank 0 alone; the others wait for its result.

    If it fails, rank 0 prints the reason and all ranks exit.
    """
    if not DISTRIBUTED:
        return function(*args, **options)
    result = [None]
    if RANK == 0:
        try:
            result = [function(*args, **options)]
        except SystemExit as end:
            if end.code:
                raise
            result = [end]  # --help
    try:
        dist.broadcast_object_list(result)
    except RuntimeError:  # rank 0 is gone
        raise SystemExit(2) from None
    if isinstance(result[0], SystemExit):
        raise result[0]
    return result[0]


def reduced(*values: float, op) -> list[float]:
    """The sum (dist.ReduceOp.SUM) or the maximum (MAX) of each number over all ranks."""
    numbers = torch.tensor(values, dtype=torch.float64)
    if DISTRIBUTED:
        dist.all_reduce(numbers, op)
    return numbers.tolist()


def add_arguments(parser) -> None:
    """The flags of ddp_run.py beyond those of every script."""
    add = parser.add_argument
    tokens = dict(type=positive, metavar="TOKENS")
    add("--total-batch", **tokens, help="an optimizer step of all ranks (CUDA: 524288, else 4096)")
    add("--max-lr", type=learning_rate, default=6e-4, help="at the end of the warm-up (6e-4)")
    add("--warmup", type=count, metavar="STEPS", help="(default: a fifth of --steps)")
    seed = dict(type=count, metavar="SEED")
    add("--shuffle", **seed, help="read rows in another order each epoch (default: in order)")
    add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="(bfloat16)")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    every = dict(type=count, metavar="STEPS")
    add("--eval-every", **every, default=100, help="0: never (default: 100)")
    add("--ckpt-every", **every, default=0, help="0: on SIGTERM alone (default)")
    add("--ckpt-dir", default="checkpoints", help="default: checkpoints")
    add("--resume", action="store_true", help="from the last one in --ckpt-dir")


def learning_rate(text: str) -> float:
    """argparse type: a positive number."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def parse(doc: str, argv: list[str] | None):
    """The flags, defaults filled in. Ends the process with status 2 where they make no sense."""
    args = parse_args(doc, argv, add_arguments, longest=None)
    on_cuda = args.device.type == "cuda"
    args.total_batch = args.total_batch or (524288 if on_cuda else 4096)
    if args.warmup is None:
        args.warmup = max(1, args.steps // 5)
    trouble = None
    if DISTRIBUTED and args.device.type == "mps":
        trouble = "gloo does not reach an Apple GPU: --device cpu, or train without torchrun"
    if on_cuda and DISTRIBUTED:
        if args.device.index is not None:
            trouble = f"--device {args.device}: torchrun gives each process a GPU, say cuda"
        elif (gpus := torch.cuda.device_count()) < LOCAL_WORLD:
            trouble = (
                f"torchrun started {LOCAL_WORLD} processes on this machine, where PyTorch sees "
                f"{gpus} CUDA devices: --nproc_per_node={gpus}, or train with --device cpu"
            )
    if trouble:
        print(f"error {trouble}", file=sys.stderr)
        raise SystemExit(2)
    return args


def prepare(args, say) -> Job:
    """Look at flags, corpus and checkpoints, on rank 0 for all; then read the corpus on each.

    A job that torchrun restarted goes on from its newest checkpoint. Raises BadInput.
    """
    (restarts,) = reduced(RESTARTS, op=dist.ReduceOp.MAX)  # a node knows of its own only
    args.resume = args.resume or restarts > 0
    splits = []

    def look():
        splits.extend(load_splits(args.data, say))
        return agree(args, *splits, say)

    agreed = on_rank_0(look)
    text, held_out = splits or load_splits(args.data, say)  # tokenized by now
    if text.identity != agreed["identity"]["data"]:
        raise BadInput(
            f"this rank reads {text.identity}, rank 0 {agreed['identity']['data']}: give every "
            "machine the same --data"
        )
    return Job(text, held_out, **agreed)


def agree(args, text: Corpus, held_out: Corpus, say) -> dict:
    """The fields of Job but for the texts. Raises BadInput."""
    T = args.seq_len
    micro_steps = count_micro_steps(args.total_batch, args.batch_size, T)
    Batches(text, args.batch_size, T)  # raises BadInput if the text is too short
    val_rows = 0
    if args.eval_every:
        val_rows = min(args.total_batch // T, Batches(held_out, 1, T).rows_per_epoch)
    identity = {"data": text.identity, **named(args, MUST_AGREE)}
    path = checkpoint.choose(args.ckpt_dir, args.resume, identity, named(args, MAY_CHANGE), say)
    return dict(micro_steps=micro_steps, val_rows=val_rows, identity=identity, checkpoint=path)


def named(args, names: tuple[str, ...]) -> dict:
    """Flags as a checkpoint keeps them: by the names that a user knows."""
    return {f"--{name.replace('_', '-')}": getattr(args, name) for name in names}


def count_micro_steps(total: int, B: int, T: int) -> int:
    """Batches of B·T tokens that each rank takes for one optimizer step of `total` tokens.

    Raises BadInput if that is not a whole number.
    """
    unit = WORLD * B * T
    if total % unit:
        near = [n for n in (total // unit * unit, (total // unit + 1) * unit) if n]
        raise BadInput(
            f"--total-batch {total} is no multiple of {unit} ({WORLD} ranks x B={B} x T={T}); "
            f"the nearest that are: {', '.join(map(str, near))}"
        )
    return total // unit
