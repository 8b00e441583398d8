"""What ddp_run.py and fsdp_run.py need not show: how ranks exchange objects, start again and end.

Without a process group each function does its work for the one process that there is.
"""

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager

import torch
import torch.distributed as dist

from ladder.corpus import Corpus, load_splits
from ladder.errors import UsageError
from ladder.files import commit


def store() -> dist.Store:
    """Where the ranks that torchrun starts leave their addresses.

    torchrun keeps it when it restarts the ranks of a node, with the addresses of those that died:
    each start has its own part of it. (Several nodes count restarts separately: docs/train.md.)
    """
    found, _, _ = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") != "1":
        return found
    return dist.PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", found)


@contextmanager
def exits():
    """Let a rank that exits inside do so at once, with its status; torchrun then ends the others.

    Python's shutdown would abort gloo's threads, and hide the status.
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


def on_rank_0(function: Callable):
    """Return on all ranks what function() returns on rank 0. If it raises, the others exit with 0.

    Exit 0, so that rank 0 can print its error: if another rank failed, torchrun would end rank 0.
    """
    if not dist.is_initialized():
        return function()
    message = [None]  # stays None if function() raises
    try:
        if dist.get_rank() == 0:
            message = [{"returned": function()}]
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


def load_text(data: str | None, print0: Callable) -> tuple[Corpus, Corpus]:
    """Read text and held-out text on every rank. Raises UsageError if a rank has others."""
    # Rank 0 is the first: if the text is wrong, it alone says so.
    splits = []
    on_rank_0(lambda: splits.extend(load_splits(data, print0)))
    if not splits:
        splits = load_splits(data, print0)
    text, held_out = splits
    here = f"commit {commit()}, torch {torch.__version__}, data {text.sha256[:12]}"
    there = on_rank_0(lambda: here)
    if here != there:
        raise UsageError(f"this rank has {here}; rank 0 {there}: give every machine the same")
    return text, held_out
