"""Write text with a model that train.py trained, or with a GPT-2 of
transformers.

    ladder sample                                       the newest run's best model
    ladder sample checkpoints/20261122-101500-4242      this run's
    ladder sample my-gpt2 --prompt "The sea" --tokens 200

The text appears as it is drawn, one token after the other, without top-k or
temperature.
"""

import argparse
import runpy
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ladder.checkout import ROOT
from ladder.cli import add_flags, path, pick_device, positive, seed
from ladder.corpus import END_OF_TEXT, GPT2_VOCAB_SIZE, MARK, gpt2_vocabulary
from ladder.disk import runs_by_time
from ladder.errors import UsageError
from ladder.text import printable

if TYPE_CHECKING:
    import torch

NOT_YET = 6.0  # nats a token; above, a model knows little more than which tokens are frequent


def add_arguments(parser: argparse.ArgumentParser):
    folder = "of checkpoints (its best/), or one that transformers loads (default: the newest run)"
    parser.add_argument("folder", nargs="?", type=path, help=folder)
    parser.add_argument("--prompt", default="", help="text to go on from (default: none)")
    parser.add_argument("--tokens", type=positive, default=100, help="how many (default: 100)")
    words = "each draws another text (default: 1337)"
    parser.add_argument("--seed", type=seed, default=1337, help=words)
    add_flags(parser, "device")


def main(args: argparse.Namespace) -> int:
    """The subcommand. Returns the exit status."""
    folder = args.folder or newest()
    model, metadata = load_model(folder)
    if "val_loss" in metadata:
        loss = float(metadata["val_loss"])
        not_yet = ", so it has not learnt to write yet" if loss > NOT_YET else ""
        print(f"note  {folder} has a validation loss of {loss:.2f}{not_yet}")
    vocabulary = gpt2_vocabulary()
    model.to(pick_device(args.device))
    ids = vocabulary.encode(args.prompt, allowed_special={MARK})
    printed = 0  # characters
    for token in sample(model, ids, args.tokens, args.seed):
        ids.append(token)
        text = printable(vocabulary.decode(ids), keep="\n\t")
        if not text.endswith("\ufffd"):  # else the bytes of a character are not complete
            print(text[printed:], end="", flush=True)
            printed = len(text)
    print()
    return 0


def newest() -> str:
    """The folder of the newest run that has a model. Raises UsageError."""
    from ladder import weights  # it imports torch, which --help need not

    for folder in reversed(runs_by_time().values()):
        with suppress(UsageError):
            weights.find(folder)
            return str(folder)
    raise UsageError("no run in checkpoints/ has a best/ yet: name the folder of a model")


def load_model(name: str) -> tuple["torch.nn.Module", dict[str, str]]:
    """The model on disk called `name`, as `weights.find` finds it, on the CPU, and its metadata.

    Raises UsageError. The model's block_size is the T of its run: no later position was trained.
    """
    from ladder import weights  # it imports torch, which --help need not

    shape, state, metadata = weights.load(name)
    tokens = shape["vocab_size"]
    if tokens < GPT2_VOCAB_SIZE:
        raise UsageError(f"{name} has {tokens} tokens, GPT-2's vocabulary {GPT2_VOCAB_SIZE}")
    script = runpy.run_path(str(ROOT / "train.py"))
    model = script["GPT"](script["GPTConfig"](**shape))
    weights.fill(model, shape, state)
    model.config.block_size = int(metadata.get("seq_len", shape["block_size"]))
    return model, metadata


def sample(model: "torch.nn.Module", ids: list[int], count: int, seed: int) -> Iterator[int]:
    """Yield `count` token ids, each drawn from what the model predicts after those before it.

    Rows that pad the vocabulary are never drawn. Of a longer text the model sees the last
    block_size tokens.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    ids = [END_OF_TEXT, *ids]
    device = model.lm_head.weight.device
    for _ in range(count):
        seen = torch.tensor([ids[-model.config.block_size :]], device=device)  # (1, T)
        with torch.no_grad():
            logits = model(seen)  # (1, T, vocab_size)
        probabilities = logits[0, -1, :GPT2_VOCAB_SIZE].float().cpu().softmax(dim=0)
        token = torch.multinomial(probabilities, 1, generator=generator).item()
        ids.append(token)
        yield token
