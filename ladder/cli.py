"""The command line, the same for every script, and its defaults by device."""

import argparse
import math
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ladder.errors import UsageError, exit_with, explain
from ladder.machine import half_precision, memory_of, unseen_gpu
from ladder.memory import default_batch, train_batch
from ladder.text import did_you_mean

if TYPE_CHECKING:  # --help of a subcommand works without it
    import torch

MODELS = {
    # 4 layers, but the real vocabulary and block size: for tests and quick looks.
    "tiny": dict(n_layer=4, n_head=4, n_embd=128),
    "gpt2": dict(n_layer=12, n_head=12, n_embd=768),  # 124M
    "gpt2-medium": dict(n_layer=24, n_head=16, n_embd=1024),  # 355M
    "gpt2-large": dict(n_layer=36, n_head=20, n_embd=1280),  # 774M
    "gpt2-xl": dict(n_layer=48, n_head=25, n_embd=1600),  # 1558M
}
BLOCK_SIZE = 1024  # positions in every GPT-2
EVERYWHERE = dict(model="gpt2", seed=1337, log_dir="runs")
ON_CUDA = dict(steps=50, seq_len=1024, total_batch=524288, val_tokens=10485760)
ELSEWHERE = dict(steps=20, batch_size=4, seq_len=256, total_batch=4096, val_tokens=4096)


def at_least(low: int, read: type = int, below: float = math.inf) -> Callable:
    """An argparse type: integers, or with `read=float` finite numbers, from `low` to `below`."""

    def number(text: str) -> float:
        value = read(text)
        if not low <= value < below:
            limit = f" and below {below}" if below < math.inf else ""
            raise argparse.ArgumentTypeError(
                f"expected a number of at least {low}{limit}, got {text}"
            )
        return value

    return number


positive = at_least(1)
count = at_least(0)
seed = at_least(0, below=2**63)  # what PyTorch's generators take
not_negative = at_least(0, float)


def path(text: str) -> str:
    """An argparse type: a path. `~` is the user's home: most shells leave it alone in --flag=~/…"""
    if not text:  # of a variable that is not set
        raise argparse.ArgumentTypeError("expected a path, got none")
    text.encode()  # raises ValueError: torch and safetensors open no name that is not UTF-8
    return os.path.expanduser(text)


# The flags of every script. Commands that start scripts take some of them too, and pass them on.
FLAGS = {
    "model": dict(choices=MODELS, help="its size (default: gpt2, 124M)"),
    "steps": dict(type=positive, help="optimizer steps (default: CUDA 50, else 20)"),
    "batch_size": dict(type=positive, help="sequences, B (default: by a GPU's memory, else 4)"),
    "seq_len": dict(
        type=at_least(1, below=BLOCK_SIZE + 1),
        help="tokens a sequence, T (default: CUDA 1024, else 256)",
    ),
    "seed": dict(type=seed, help="of weights, and where in the text to begin (default: 1337)"),
    "shuffle": dict(type=count, help="seed of a random order of the rows (default: in order)"),
    "device": dict(help="cpu, cuda, cuda:N or mps (default: the best there is)"),
    "data": dict(type=path, help="a text, shard or folder of shards (default: tinyshakespeare)"),
    "log_dir": dict(type=path, help="folder for the log (default: runs)"),
}
# The flags of train.py and fsdp_run.py.
TRAIN_FLAGS = FLAGS | {
    "steps": dict(type=count, help="as of the rungs; 0: validate and end"),
    "seq_len": dict(type=positive, help="as of the rungs, but of any length"),
    "total_batch": dict(
        type=positive, help="tokens a step, of all ranks (default: CUDA 524288, else 4096)"
    ),
    "max_lr": dict(type=not_negative, default=6e-4, help="after the warm-up (default: 6e-4)"),
    "min_lr": dict(type=not_negative, help="at the last step (default: a tenth of --max-lr)"),
    "beta2": dict(
        type=at_least(0, float, below=1),
        default=0.95,
        help="AdamW's (default: 0.95, for some 0.5M tokens a step)",
    ),
    "warmup": dict(type=count, help="steps (default: a fifth of --steps, at most 250)"),
    "dtype": dict(
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        help="default: auto: as rung 03, by the device",
    ),
    "no_compile": dict(action="store_true", help="leave torch.compile out"),
    "recompute": dict(action="store_true", help="compute blocks again in backward: less memory"),
    "eval_every": dict(
        type=count, default=100, help="steps; 0: never, and no best/ (default: 100)"
    ),
    "val_tokens": dict(
        type=positive, help="held-out tokens of a validation (default: CUDA 10485760, else 4096)"
    ),
    "ckpt_every": dict(
        type=count, default=500, help="steps, and at the end; 0: never (default: 500)"
    ),
    "ckpt_dir": dict(type=path, help="default: a new folder in checkpoints/"),
    "resume": dict(
        action="store_true",
        help="from the newest in --ckpt-dir, or the newest in checkpoints/",
    ),
    "init": dict(
        type=path,
        help="a folder that transformers loads, or one of checkpoints: its best/ (default: none)",
    ),
}


def add_flags(parser: argparse.ArgumentParser, *names: str, flags: dict = FLAGS):
    """Add those of `flags` with these names, or all, to a parser."""
    for name in names or flags:
        parser.add_argument(f"--{name.replace('_', '-')}", **flags[name])


def given_flags(args: argparse.Namespace, *names: str) -> list[str]:
    """The flags of these names that were given, as arguments for a script's command line."""
    flags = []
    for name in names:
        value = getattr(args, name)
        if value is not None:
            flags.append(f"--{name.replace('_', '-')}={value}")
    return flags


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a flag in one line, without all flags: `error` raises UsageError."""

    def __init__(self, description: str | None, **more: object):
        as_it_is = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, formatter_class=as_it_is, **more)

    def error(self, message: str) -> NoReturn:
        how = f"see {self.prog} --help"
        unknown = re.search("unrecognized arguments:.*?(--[^ =]+)", message)
        if unknown:
            how += did_you_mean(unknown[1], self._option_string_actions)
        if "--local" in message:  # of torch.distributed.launch
            how = "start it with torchrun, which needs none"
        raise UsageError(f"{message} ({how})")


def parse_args(doc: str, argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the flags every script takes; `doc` is the script's docstring.

    Returns model, steps, batch_size (B), seq_len (T), seed, shuffle, device (torch.device), data
    and log_dir.
    Exits with status 2 and one line on stderr if a flag is invalid.
    """
    return _parse(doc, argv, FLAGS, _complete)


def parse_train_args(
    doc: str, argv: list[str] | None = None, world_size: int = 1, sharded: bool = False
) -> argparse.Namespace:
    """Parse TRAIN_FLAGS as parse_args does FLAGS. T may be of any length.

    Where weights are `sharded`, as in fsdp_run.py, a larger B fits.
    """
    return _parse(doc, argv, TRAIN_FLAGS, _complete_train, world_size, sharded)


def _parse(
    doc: str, argv: list[str] | None, flags: dict, complete: Callable, *ranks: int
) -> argparse.Namespace:
    """Parse `flags`, fill in the defaults by device, and complete(args, *ranks) the others.

    Exits with one line after an error that a user can fix.
    """
    try:
        parser = Parser(doc)
        add_flags(parser, flags=flags)
        args = parser.parse_args(argv)
        _fill_in(args, flags)
        complete(args, *ranks)
    except Exception as error:  # a GPU that does not start, too
        line = explain(error)
        if not line:
            raise
        exit_with(line)
    return args


def filled_in(args: argparse.Namespace, **decided: object) -> argparse.Namespace:
    """What a script would make of these FLAGS, which a command has parsed, and of those `decided`:
    a copy with the defaults by device. Raises UsageError."""
    args = argparse.Namespace(**vars(args) | decided)
    _fill_in(args, FLAGS)
    _complete(args)
    return args


def _fill_in(args: argparse.Namespace, flags: dict):
    """Fill in the device and, but for B, the defaults by device of those `flags` that are None."""
    args.device = pick_device(args.device)
    defaults = ON_CUDA if args.device.type == "cuda" else ELSEWHERE
    for name, value in (EVERYWHERE | defaults).items():
        if name in flags and getattr(args, name, None) is None:
            setattr(args, name, value)


def _complete(args: argparse.Namespace):
    """Fill in B."""
    if args.batch_size is None:
        memory = memory_of(args.device)
        args.batch_size = default_batch(memory, MODELS[args.model], args.seq_len)


def _complete_train(args: argparse.Namespace, world_size: int, sharded: bool):
    """Fill in B, the schedule and the dtype. Raises UsageError if flags do not go together."""
    if args.steps == 0:
        args.ckpt_every = 0  # nothing is trained
    if args.warmup is None:
        # A fifth, as in rung 09. A long run needs no such share: at larger learning rates the
        # AdamW baseline of modded-nanogpt warms up in 250 of 9,536 steps.
        args.warmup = min(max(1, args.steps // 5), 250)
    elif args.warmup > args.steps > 0:
        raise UsageError(
            f"--warmup {args.warmup} is beyond --steps {args.steps}: the rate would never reach "
            "--max-lr"
        )
    if args.min_lr is None:
        args.min_lr = args.max_lr / 10
    if args.dtype == "auto":
        args.dtype = str(half_precision(args.device)).removeprefix("torch.")
    if args.batch_size is None:
        _complete(args)
        if args.dtype != "float32" and not args.no_compile:
            memory = memory_of(args.device)
            shards = world_size if sharded else None
            B = train_batch(memory, MODELS[args.model], args.seq_len, shards, args.recompute)
            rows = args.total_batch // (world_size * args.seq_len)  # of each rank in a step
            args.batch_size = math.gcd(max(1, B), rows)  # a power of two
    tokens = world_size * args.batch_size * args.seq_len
    if args.total_batch % tokens:
        raise UsageError(
            f"--total-batch {args.total_batch} is not a multiple of {tokens} tokens "
            f"(world size {world_size} x B={args.batch_size} x T={args.seq_len})"
        )


def pick_device(name: str | None) -> "torch.device":
    """The torch.device called `name`, or the best there is. Raises UsageError if there is none."""
    import torch  # not above: --help of a subcommand works without it

    if name is None:
        best = torch.accelerator.current_accelerator(check_available=True)
        name = best.type if best and best.type in ("cuda", "mps") else "cpu"
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise UsageError(f"--device {name}: expected cpu, cuda, cuda:N or mps")
    device = torch.device(name)
    gpus = torch.cuda.device_count()
    if device.type == "mps":
        gpus = int(torch.backends.mps.is_available())
    # torchrun says how many processes it has started on this machine.
    needed = max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1), (device.index or 0) + 1)
    if device.type != "cpu" and needed > gpus:
        found = f"PyTorch finds {gpus} such GPU(s) here, and each process takes one"
        raise UsageError(f"--device {name}: {unseen_gpu() or found}; try --device cpu")
    return device
