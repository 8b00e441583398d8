"""What ddp_run.py, train.py and fsdp_run.py need not show: how ranks meet, exchange what they have,
and exit.

Without a process group each function does its work for the one process that there is.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from ladder.batches import Batches
from ladder.checkout import commit
from ladder.corpus import Corpus, load_splits
from ladder.errors import UsageError, exit_with

# What torchrun sets for each process that it starts; without it there is one process.
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


def from_torchrun(name: str) -> int:
    """RANK, LOCAL_RANK or WORLD_SIZE, as torchrun set it, or that of a process alone."""
    values = os.environ if started_by_torchrun() else ALONE
    return int(values[name])


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return all(os.environ.get(name) for name in TORCHRUN)


def require_torchrun(script: str):
    """Exit with status 2 and the command that starts `script` if torchrun has not."""
    if not started_by_torchrun():
        name = Path(script).name
        exit_with(
            f"{name} is started by torchrun, a process for each GPU: torchrun --standalone "
            f"--nproc_per_node=2 {name} (on one device: speedups/10_fused_adamw.py, or train.py)"
        )


def backend() -> str:
    """What sends between ranks: gloo between CPUs, NCCL between GPUs (on Windows gloo too)."""
    nccl = torch.cuda.is_available() and dist.is_nccl_available()
    return "cpu:gloo,cuda:nccl" if nccl else "gloo"


def meeting() -> dict[str, object]:
    """Options of init_process_group: where ranks leave their addresses, and who of how many this
    is.

    torchrun keeps the addresses when it restarts the ranks of a node, also of those that died: each
    start has its own part of them. (Several nodes count restarts separately: docs/train.md.)
    """
    who = {"rank": from_torchrun("RANK"), "world_size": from_torchrun("WORLD_SIZE")}
    if not started_by_torchrun():
        return who | {"store": dist.HashStore()}
    store, _, _ = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        store = dist.PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    return who | {"store": store}


@contextmanager
def clean_exit() -> Iterator[None]:
    """Let a rank that exits inside do so at once, with its status; torchrun then ends the others.

    Python's shutdown would abort gloo's threads, and hide the status. The process group, if there
    is one, ends here.
    """
    try:
        yield
    except SystemExit as end:
        if dist.is_initialized():
            if dist.get_world_size() > 1:
                sys.stdout.flush()
                os._exit(end.code or 0)
            dist.destroy_process_group()
        raise
    if dist.is_initialized():
        dist.destroy_process_group()


def on_rank_0(function: Callable, *args: object, **options: object) -> object:
    """Call a function on rank 0, and return on all ranks what it returns.

    If it raises, the others exit with 0, so that rank 0 can print its error: if another rank
    failed, torchrun would end rank 0.
    """
    if not dist.is_initialized():
        return function(*args, **options)
    message = [None]  # stays None if function() raises
    try:
        if dist.get_rank() == 0:
            message = [{"returned": function(*args, **options)}]
    finally:
        dist.broadcast_object_list(message)
    if message[0] is None:
        raise SystemExit(0)
    return message[0]["returned"]


def all_gather(*values: float) -> list[tuple[float, ...]]:
    """Return one tuple for each value: what it is on rank 0, on rank 1, and so on."""
    rows = [values]
    if dist.is_initialized():
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, values)
    return list(zip(*rows, strict=True))


def load_text(args: Namespace, print0: Callable) -> tuple[Corpus, Corpus]:
    """Read text and held-out text. Raises UsageError if rank 0 has others, or one is too short."""
    text, held_out = load_splits(args.data, print0)
    Batches(text, args.batch_size, args.seq_len)  # raises UsageError without a batch
    if args.eval_every:
        Batches(held_out, 1, args.seq_len)
    here = f"commit {commit()}, torch {torch.__version__}, data {text.sha256[:12]}"
    there = on_rank_0(str, here)
    if here != there:
        raise UsageError(f"this rank has {here}; rank 0 {there}: give every machine the same")
    return text, held_out


def scatter(state: dict, model: torch.nn.Module):
    """Copy the weights in `state`, which rank 0 has, to the shards of all ranks."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)
