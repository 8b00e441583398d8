"""The command line, the same for every script, and its defaults by device."""

import argparse
import os
import re
import sys

from ladder.errors import UsageError, exit_with, explain
from ladder.memory import default_batch_size

MODELS = {
    # 4 layers, but the real vocabulary and block size: for tests and quick looks.
    "tiny": dict(n_layer=4, n_head=4, n_embd=128),
    "gpt2": dict(n_layer=12, n_head=12, n_embd=768),  # 124M
    "gpt2-medium": dict(n_layer=24, n_head=16, n_embd=1024),  # 355M
    "gpt2-large": dict(n_layer=36, n_head=20, n_embd=1280),  # 774M
    "gpt2-xl": dict(n_layer=48, n_head=25, n_embd=1600),  # 1558M
}
BLOCK_SIZE = 1024  # positions in every GPT-2


def at_least(low: int):
    """An argparse type: integers of at least `low`."""

    def integer(text: str) -> int:
        value = int(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"expected an integer of at least {low}, got {value}")
        return value

    return integer


positive = at_least(1)
count = at_least(0)

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


def add_flags(parser: argparse.ArgumentParser, *names: str):
    """Add the flags of FLAGS with these names, or all, to a parser. The default is None."""
    for name in names or FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", **FLAGS[name])


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


def parse_args(doc, argv=None, add_more=None, longest: float = BLOCK_SIZE):
    """Parse the flags every script takes; `doc` is the script's docstring.

    `add_more(parser)` adds flags of a script's own, and T may be up to `longest`.
    Returns model, steps, batch_size (B), seq_len (T), seed, shuffle, device (torch.device), data
    and log_dir.
    Exits with status 2 and one line on stderr if a flag is invalid.
    """
    parser = Parser(doc, conflict_handler="resolve")  # a script may change one of these
    add_flags(parser)
    parser.set_defaults(model="gpt2", seed=1337, log_dir="runs")
    if add_more:
        add_more(parser)
    try:
        args = parser.parse_args(argv)
        args.device = pick_device(args.device)
        on_gpu = args.device.type == "cuda"
        if args.steps is None:
            args.steps = 50 if on_gpu else 20
        args.seq_len = args.seq_len or (1024 if on_gpu else 256)
        if args.seq_len > longest:
            raise UsageError(f"--seq-len {args.seq_len} is longer than GPT-2's {longest} positions")
        if args.batch_size is None:
            size = MODELS[args.model]
            args.batch_size = default_batch_size(args.device, size, args.seq_len)
    except Exception as error:  # a GPU that does not start, too
        line = explain(error)
        if line is None:
            raise
        exit_with(line)
    return args


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
        raise UsageError(f"--device {name}: PyTorch finds no such GPU here; try --device cpu")
    return device
