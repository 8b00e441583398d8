"""The command line, the same for every script, and its defaults by device."""

import argparse
import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager

from ladder.errors import BadInput, explain
from ladder.log import printable

MODELS = {
    # 4 layers, but the real vocabulary and block size: for tests and quick looks.
    "tiny": dict(n_layer=4, n_head=4, n_embd=128),
    "gpt2": dict(n_layer=12, n_head=12, n_embd=768),  # 124M
    "gpt2-medium": dict(n_layer=24, n_head=16, n_embd=1024),  # 350M
    "gpt2-large": dict(n_layer=36, n_head=20, n_embd=1280),  # 774M
    "gpt2-xl": dict(n_layer=48, n_head=25, n_embd=1600),  # 1558M
}
BLOCK_SIZE = 1024  # positions in every GPT-2
GPUS = ("cuda", "xpu")  # NVIDIA's and AMD's, and Intel's: PyTorch knows how much memory they have


def integer(name: str, low: int, high: int, words: str):
    """An argparse type: integers with low <= value < high; `words` says so in the error."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value < high:
            raise argparse.ArgumentTypeError(f"expected {words}, got {value}")
        return value

    parse.__name__ = name  # argparse prints this name if the word is not a number
    return parse


def path(text: str) -> str:
    """An argparse type: any path. An empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty one")
    return text


def above_zero(text: str) -> float:
    """An argparse type: a positive number. Up to 1e12 none overflows in what it is used for."""
    if not 0 < (value := float(text)) < 1e12:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text} (the limit: 1e12)")
    return value


positive = integer("positive integer", 1, 2**63, "at least 1 and below 2**63")
count = integer("integer", 0, 2**63, "at least 0 and below 2**63")
seed = integer("integer", -(2**63), 2**64, "at most 64 bits")  # what torch.manual_seed takes

# The flags of every script. Commands that start scripts take some of them too, and pass them on.
FLAGS = {
    "model": dict(choices=MODELS, help="its size (default: gpt2, 124M)"),
    "steps": dict(type=positive, help="optimizer steps (default: CUDA, XPU 50, else 20)"),
    "batch_size": dict(type=positive, help="sequences, B (default: by a GPU's memory, else 4)"),
    "seq_len": dict(type=positive, help="tokens a sequence, T (default: CUDA, XPU 1024, else 256)"),
    "seed": dict(type=seed, help="of the initial weights (default: 1337)"),
    "device": dict(help="cpu, cuda, cuda:N, xpu or mps (default: the best there is)"),
    "data": dict(type=path, help="a text, shard or folder of them (default: tinyshakespeare)"),
    "log_dir": dict(type=path, help="folder for the log (default: runs)"),
}


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of FLAGS with these names, or all, to a parser. The default is None."""
    for name in names or FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", **FLAGS[name])


def given_flags(args: argparse.Namespace, *names: str) -> list[str]:
    """The given ones of these flags, as words for a script's command line."""
    values = [(name, getattr(args, name)) for name in names]
    return [f"--{name.replace('_', '-')}={v}" for name, v in values if v is not None]


def parse_args(doc, argv=None, add_more=None, check=lambda args: check_seq_len(args.seq_len)):
    """Parse the flags every script takes; `doc` is the script's docstring.

    `add_more(parser)` adds flags of a script's own, and `check(args)` raises BadInput if what was
    given makes no sense together: else T may be up to 1024.
    Returns model, steps, batch_size (B), seq_len (T), seed, device (torch.device), data, log_dir.
    Exits with status 2 and one line on stderr if a flag is invalid.
    """
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=as_it_is)
    add_flags(parser)
    parser.set_defaults(model="gpt2", seed=1337, log_dir="runs")
    if add_more:
        add_more(parser)
    args = parser.parse_args(argv)
    try:
        args.device = pick_device(args.device)
        check(args)
    except BadInput as error:
        parser.error(printable(str(error)))
    on_gpu = args.device.type in GPUS
    args.steps = args.steps or (50 if on_gpu else 20)
    args.seq_len = args.seq_len or (1024 if on_gpu else 256)
    args.batch_size = args.batch_size or default_batch_size(args.device, args.model, args.seq_len)
    return args


def check_seq_len(T: int | None) -> None:
    """Raise BadInput if T is given and the model has too few positions for it."""
    if T and T > BLOCK_SIZE:
        raise BadInput(f"--seq-len {T} is longer than GPT-2's {BLOCK_SIZE} positions")


def pick_device(name: str | None):
    """The torch.device called `name`, or the best there is. Raises BadInput if there is none."""
    import torch  # not above: --help of a subcommand works without it

    if name is None:
        best = torch.accelerator.current_accelerator(check_available=True)
        name = best.type if best and best.type in (*GPUS, "mps") else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "mps", *GPUS):
        raise BadInput(f"--device {name}: expected cpu, cuda, cuda:N, xpu or mps")
    if device.type in GPUS:
        gpu, kind = torch.get_device_module(device), device.type.upper()
        if (device.index or 0) >= (n := gpu.device_count()):
            raise BadInput(
                f"--device {name}: this PyTorch sees {n} {kind} devices; try --device cpu"
            )
        try:
            gpu.get_device_properties(device)  # starts CUDA
        except Exception as error:  # not all that CUDA raises is a RuntimeError
            why = explain(error) or str(error).partition("\n")[0]
            raise BadInput(f"--device {name}: {kind} does not start: {why}") from error
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise BadInput(f"--device {name}: no Apple GPU here; try --device cpu")
    return device


# By the rung from which on it holds: bytes that the forward pass keeps for the backward pass, for
# each token: times C in each layer, times n_head * T in each layer (the scores), and times the
# vocabulary; and how many times the vocabulary the loss takes while its gradient is computed.
KEPT = {0: (64, 4, 8, 8), 3: (36, 6, 6, 8), 5: (36, 4, 2, 4), 6: (36, 0, 2, 4)}


def step_bytes(rung: int, model: str, B: int, T: int, more: int = 0) -> int:
    """Bytes of a step's tensors when they are most: the loss is there, no gradient is yet.

    Weights and AdamW's two moments are FP32, 12 bytes a parameter; under autocast, 2 more. The
    update, with all gradients and AdamW's temporaries (24 bytes a parameter in the baseline), may
    need more where a batch is small. `more` is what else stays, in bytes a parameter.
    """
    n_layer, n_head, C = MODELS[model].values()
    V = 50257 if rung < 7 else 50304
    parameters = (V if rung else 2 * V) * C + BLOCK_SIZE * C
    parameters += n_layer * (12 * C * C + 13 * C) + 2 * C
    width, scores, vocabulary, loss = next(KEPT[n] for n in reversed(KEPT) if n <= rung)
    per_token = n_layer * (width * C + scores * n_head * T) + 10 * C + (vocabulary + loss) * V
    at_the_loss = (12 + 2 * (rung >= 3)) * parameters + B * T * per_token
    return max(at_the_loss, (24 if rung < 10 else 16) * parameters) + more * parameters


def largest_batch(
    rung: int, model: str, T: int, memory: float, limit: int = 1024, more: int = 0
) -> int:
    """The largest power of two up to `limit` whose step fits into `memory` bytes; 0 if none does.

    2 GB are left for CUDA itself, its libraries and a desktop, and an eighth for blocks that do
    not fit exactly.
    """
    sizes = (2**n for n in range(11) if 2**n <= limit)
    fits = (B for B in sizes if step_bytes(rung, model, B, T, more) * 9 / 8 + 2e9 <= memory)
    return max(fits, default=0)


def default_batch_size(device, model: str = "gpt2", T: int = BLOCK_SIZE) -> int:
    """The B, at most 16, at which the baseline, which needs most memory, fits the device."""
    import torch

    if device.type not in GPUS:
        return 4
    memory = torch.get_device_module(device).get_device_properties(device).total_memory
    return largest_batch(0, model, T, memory, 16) or 1


@contextmanager
def signals_to(handler: Callable = signal.default_int_handler):
    """Call handler(number, frame) on Ctrl-C, SIGTERM and SIGHUP (the terminal was closed) inside.

    By default all of them raise KeyboardInterrupt. A signal that is ignored, as under nohup, stays
    ignored. Only the main thread receives signals, so in other threads this does nothing.
    """
    numbers = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    heard = {n for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    if threading.current_thread() is not threading.main_thread():
        heard = set()
    elif hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else every child's exit status reads 0
    before = {n: signal.signal(n, handler) for n in heard}
    try:
        yield
    finally:
        for n, former in before.items():
            signal.signal(n, former or signal.SIG_DFL)
