"""Write text with a model that ddp_run.py trained, or with a GPT-2 of transformers.

    ladder sample checkpoints/20261122-101500-4242          the best model of a run
    ladder sample my-gpt2 --prompt "The sea" --tokens 200   what follows these words

The text appears as it is drawn, one token after the other, from the full distribution.
"""

import argparse
import runpy

from ladder.cli import add_flags, pick_device, positive, seed
from ladder.corpus import END_OF_TEXT, GPT2_VOCAB_SIZE, gpt2_vocabulary
from ladder.files import ROOT
from ladder.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folder = "a folder of checkpoints (its best/), or one that transformers loads"
    parser.add_argument("folder", metavar="FOLDER", help=folder)
    parser.add_argument("--prompt", default="", help="text to go on from (default: none)")
    parser.add_argument("--tokens", type=positive, default=100, help="how many (default: 100)")
    words = "each draws another text (default: 1337)"
    parser.add_argument("--seed", type=seed, default=1337, help=words)
    add_flags(parser, "device")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Returns the exit status."""
    from ladder import weights  # it imports torch, which --help need not

    shape, found = weights.load(args.folder)
    vocabulary, script = gpt2_vocabulary(), runpy.run_path(str(ROOT / "ddp_run.py"))
    model = script["GPT"](script["GPTConfig"](**shape))
    weights.fill(model, shape, found)
    model.to(pick_device(args.device))
    ids, shown = vocabulary.encode_ordinary(args.prompt), ""
    for token in drawn(model, ids, args.tokens, args.seed):
        ids.append(token)
        now = printable(vocabulary.decode(ids), keep="\n\t")
        if not now.endswith("\ufffd"):  # else the bytes of a character are not complete
            print(now[len(shown) :], end="", flush=True)
            shown = now
    print(printable(vocabulary.decode(ids), keep="\n\t")[len(shown) :])
    return 0


def drawn(model, ids: list[int], count: int, seed: int):
    """Yield `count` token ids, each drawn from what the model predicts after those before it.

    Rows that pad the vocabulary are never drawn. Of a longer text the model sees the last
    block_size tokens.
    """
    import torch

    generator, ids = torch.Generator().manual_seed(seed), [END_OF_TEXT, *ids]
    device = model.lm_head.weight.device
    for _ in range(count):
        seen = torch.tensor([ids[-model.config.block_size :]], device=device)  # (1, T)
        with torch.no_grad():
            logits = model(seen)[0][0, -1, :GPT2_VOCAB_SIZE].float().cpu()
        ids.append(torch.multinomial(logits.softmax(0), 1, generator=generator).item())
        yield ids[-1]
