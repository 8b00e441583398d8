"""The command line, the same for every script, and its defaults by device."""

import argparse
import math
import os
import re
import sys
from contextlib import contextmanager

from ladder.errors import UsageError, exit_with, explain
from ladder.machine import half_precision, unseen_gpu
from ladder.memory import ddp_batch, default_batch_size, memory_of

MODELS = {
    # 4 layers, but the real vocabulary and block size: for tests and quick looks.
    "tiny": dict(n_layer=4, n_head=4, n_embd=128),
    "gpt2": dict(n_layer=12, n_head=12, n_embd=768),  # 124M
    "gpt2-medium": dict(n_layer=24, n_head=16, n_embd=1024),  # 355M
    "gpt2-large": dict(n_layer=36, n_head=20, n_embd=1280),  # 774M
    "gpt2-xl": dict(n_layer=48, n_head=25, n_embd=1600),  # 1558M
}
BLOCK_SIZE = 1024  # positions in every GPT-2


def at_least(low: int, read: type = int):
    """An argparse type: integers, or with `read=float` finite numbers, of at least `low`."""

    def number(text: str):
        value = read(text)
        if not low <= value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number of at least {low}, got {text}")
        return value

    return number


positive = at_least(1)
count = at_least(0)
rate = at_least(0, float)

# The flags of every script. Commands that start scripts take some of them too, and pass them on.
FLAGS = {
    "model": dict(choices=MODELS, help="its size (default: gpt2, 124M)"),
    "steps": dict(type=positive, help="optimizer steps (default: CUDA 50, else 20)"),
    "batch_size": dict(type=positive, help="sequences, B (default: by a GPU's memory, else 4)"),
    "seq_len": dict(type=positive, help="tokens a sequence, T (default: CUDA 1024, else 256)"),
    "seed": dict(type=int, help="of weights, and where in the text to begin (default: 1337)"),
    "shuffle": dict(type=count, help="seed of a random order of the rows (default: in order)"),
    "device": dict(help="cpu, cuda, cuda:N or mps (default: the best there is)"),
    "data": dict(help="a text, shard or folder of them (default: tinyshakespeare)"),
    "log_dir": dict(help="folder for the log (default: runs)"),
}
# The flags of ddp_run.py and fsdp_run.py.
DDP_FLAGS = FLAGS | {
    "steps": dict(
        type=count, help="optimizer steps (default: CUDA 50, else 20); 0: validate and end"
    ),
    "total_batch": dict(
        type=positive, help="tokens a step, of all ranks (default: CUDA 524288, else 4096)"
    ),
    "max_lr": dict(type=rate, default=6e-4, help="after the warm-up (default: 6e-4)"),
    "min_lr": dict(type=rate, help="at the last step (default: a tenth of --max-lr)"),
    "beta2": dict(
        type=rate, default=0.95, help="AdamW's (default: 0.95, for some 0.5M tokens a step)"
    ),
    "warmup": dict(type=count, help="steps (default: a fifth of --steps, at most 250)"),
    "dtype": dict(
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        help="default: auto: as rung 03, by the device",
    ),
    "no_compile": dict(action="store_true", help="leave torch.compile out"),
    "eval_every": dict(
        type=count, default=100, help="steps; 0: never, and no best/ (default: 100)"
    ),
    "val_tokens": dict(
        type=positive, help="held-out tokens of a validation (default: CUDA 10485760, else 4096)"
    ),
    "ckpt_every": dict(
        type=count, default=500, help="steps, and at the end; 0: never (default: 500)"
    ),
    "ckpt_dir": dict(help="default: a new folder in checkpoints/"),
    "resume": dict(
        action="store_true",
        help="from the newest in --ckpt-dir, or the newest in checkpoints/",
    ),
    "init": dict(
        help="a folder that transformers loads, or one of checkpoints: its best/ (default: none)"
    ),
}


def add_flags(parser: argparse.ArgumentParser, *names: str, flags: dict = FLAGS):
    """Add those of `flags` with these names, or all, to a parser."""
    for name in names or flags:
        parser.add_argument(f"--{name.replace('_', '-')}", **flags[name])


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a flag in one line, without all flags: `error` raises UsageError.

    `~` is the user's home in `--flag=~/…` too, where most shells leave it alone.
    """

    def __init__(self, description: str | None, **more):
        as_it_is = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, formatter_class=as_it_is, **more)

    def parse_args(self, words=None, namespace=None):
        """As argparse's."""
        expanded = []
        for word in sys.argv[1:] if words is None else words:
            flag, equals, value = word.partition("=")
            if equals and flag.startswith("--"):
                word = f"{flag}={os.path.expanduser(value)}"
            expanded.append(os.path.expanduser(word))
        return super().parse_args(expanded, namespace)

    def error(self, message: str):
        raise UsageError(f"{message} (see {self.prog} --help)")


def parse_args(doc, argv=None):
    """Parse the flags every script takes; `doc` is the script's docstring.

    Returns model, steps, batch_size (B), seq_len (T), seed, shuffle, device (torch.device), data
    and log_dir.
    Exits with status 2 and one line on stderr if a flag is invalid.
    """
    with _errors_in_a_line():
        args = _parse(doc, argv, FLAGS)
        if args.seq_len > BLOCK_SIZE:
            longest = f"GPT-2's {BLOCK_SIZE} positions"
            raise UsageError(f"--seq-len {args.seq_len} is longer than {longest}")
        if args.batch_size is None:
            size = MODELS[args.model]
            args.batch_size = default_batch_size(args.device, size, args.seq_len)
    return args


def parse_ddp_args(doc, argv=None, world_size: int = 1, sharded: bool = False):
    """Parse DDP_FLAGS as parse_args does FLAGS. T may be of any length.

    Where weights are `sharded`, as in fsdp_run.py, a larger B fits.
    """
    with _errors_in_a_line():
        args = _parse(doc, argv, DDP_FLAGS)
        on_gpu = args.device.type == "cuda"
        if on_gpu:
            _check_gpus()
        args.total_batch = args.total_batch or (524288 if on_gpu else 4096)
        args.val_tokens = args.val_tokens or (10485760 if on_gpu else 4096)
        if args.warmup is None:
            # A fifth, as in rung 09. A long run needs no such share: at larger learning rates the
            # AdamW baseline of modded-nanogpt warms up in 250 of 9,536 steps.
            args.warmup = min(max(1, args.steps // 5), 250)
        if args.steps == 0:
            args.ckpt_every = 0  # nothing is trained
        if args.min_lr is None:
            args.min_lr = args.max_lr / 10
        if args.dtype == "auto":
            args.dtype = str(half_precision(args.device)).removeprefix("torch.")
        if args.batch_size is None:
            args.batch_size = _ddp_batch_size(args, world_size, sharded)
        _check_total_batch(args, world_size)
        _check_schedule(args)
    return args


@contextmanager
def _errors_in_a_line():
    """Exit with status 2 and one line after an error that a user can fix."""
    try:
        yield
    except Exception as error:  # a GPU that does not start, too
        line = explain(error)
        if line is None:
            raise
        exit_with(line)


def _parse(doc, argv, flags: dict):
    """Parse `flags`, and fill in the defaults that all scripts share."""
    parser = Parser(doc)
    add_flags(parser, flags=flags)
    parser.set_defaults(model="gpt2", seed=1337, log_dir="runs")
    args = parser.parse_args(argv)
    args.device = pick_device(args.device)
    on_gpu = args.device.type == "cuda"
    if args.steps is None:
        args.steps = 50 if on_gpu else 20
    args.seq_len = args.seq_len or (1024 if on_gpu else 256)
    return args


def _check_gpus():
    """Raise UsageError if torchrun started more processes on this machine than it has GPUs."""
    import torch

    processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpus = torch.cuda.device_count()
    if gpus < processes:
        found = f"torchrun started {processes} processes, found {gpus} CUDA device(s)"
        raise UsageError(f"{found}: --nproc_per_node={gpus}, or train on --device cpu")


def _ddp_batch_size(args, world_size: int, sharded: bool) -> int:
    """The largest power of two that fits a GPU and divides its rows of a step.

    On a CPU, in FP32 or not compiled, B is the default of the other scripts.
    """
    size = MODELS[args.model]
    if args.device.type != "cuda" or args.no_compile or args.dtype == "float32":
        return default_batch_size(args.device, size, args.seq_len)
    shards = world_size if sharded else None
    B = max(1, ddp_batch(memory_of(args.device), size, args.seq_len, shards))
    rows_of_a_step = args.total_batch // (world_size * args.seq_len)
    while rows_of_a_step % B:
        B //= 2
    return B


def _check_schedule(args):
    """Raise UsageError if the flags of the schedule do not go together."""
    if args.min_lr > args.max_lr:
        raise UsageError(f"--min-lr {args.min_lr:g} is above --max-lr {args.max_lr:g}")
    if args.warmup > max(1, args.steps):
        raise UsageError(f"--warmup {args.warmup} is more than --steps {args.steps}")
    if not 0 < args.beta2 < 1:
        raise UsageError(f"--beta2 {args.beta2:g}: expected a number between 0 and 1")


def _check_total_batch(args, world_size: int):
    """Raise UsageError if the ranks cannot fill a step with whole batches."""
    tokens = world_size * args.batch_size * args.seq_len
    full, rest = divmod(args.total_batch, tokens)
    if rest:
        wrong = f"--total-batch {args.total_batch} is not a multiple of {tokens} tokens"
        sizes = f"world size {world_size} x B={args.batch_size} x T={args.seq_len}"
        raise UsageError(f"{wrong} ({sizes}); the next one is {(full + 1) * tokens}")


def pick_device(name: str | None):
    """The torch.device called `name`, or the best there is. Raises UsageError if there is none."""
    import torch  # not above: --help of a subcommand works without it

    if name is None:
        best = torch.accelerator.current_accelerator(check_available=True)
        name = "cpu"
        if best and best.type in ("cuda", "mps"):
            name = best.type
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise UsageError(f"--device {name}: expected cpu, cuda, cuda:N or mps")
    device = torch.device(name)
    number = device.index or 0
    exists = True
    if device.type == "cuda":
        exists = number < torch.cuda.device_count()
    elif device.type == "mps":
        exists = torch.backends.mps.is_available()
    if not exists:
        why = unseen_gpu() or "PyTorch finds no such GPU here"
        raise UsageError(f"--device {name}: {why}; try --device cpu")
    return device
