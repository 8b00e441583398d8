"""Write text with a model that ddp_run.py trained, or with a GPT-2 in transformers' layout.

    ladder sample checkpoints/20261122-101500-4242          the best model of a run
    ladder sample FILE.pt --prompt "The sea" --tokens 200   what follows these words

The text appears as it is drawn, one token after the other, from all that the model holds possible.
"""

import argparse
import os
import runpy

import numpy as np

from ladder.cli import add_flags, pick_device, positive, seed
from ladder.commands.process import if_slow
from ladder.corpus import END_OF_TEXT, VOCABULARY_TIMEOUT_S, Corpus, gpt2_encoder
from ladder.errors import BadInput
from ladder.files import ROOT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = "a checkpoint, a folder of them (its best), or a folder that transformers loads"
    parser.add_argument("model", metavar="CKPT", help=model)
    parser.add_argument("--prompt", default="", help="text to go on from (default: none)")
    parser.add_argument("--tokens", type=positive, default=100, help="how many (default: 100)")
    words = "each draws another text (default: 1337)"
    parser.add_argument("--seed", type=seed, default=1337, help=words)
    add_flags(parser, "device")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Returns the exit status."""
    with if_slow():
        from ladder import checkpoint  # it imports torch, which --help need not

    device = pick_device(args.device)
    found, model = load(args.model)
    encode = gpt2_encoder(VOCABULARY_TIMEOUT_S) if found.tokenizer == "gpt2" else os.fsencode
    if not encode:
        raise BadInput("no GPT-2 vocabulary: no network, and none in TIKTOKEN_CACHE_DIR")
    model.to(device)
    text = Corpus("", "", [np.zeros(1, np.uint16)], found.tokenizer)  # it decodes
    ids, shown = [*encode(args.prompt)], ""
    seen = [END_OF_TEXT, *ids]
    for token in checkpoint.sample(model, seen, args.tokens, text.known_tokens, args.seed):
        ids.append(token)
        now = harmless(text.decode(ids))
        if not now.endswith("\ufffd"):  # else the bytes of a character are not complete
            print(now[len(shown) :], end="", flush=True)
            shown = now
    print(harmless(text.decode(ids))[len(shown) :])
    return 0


def load(name: str):
    """The weights at `name` as `checkpoint.stored` has them, and the GPT that they fit into."""
    from ladder import checkpoint

    found, script = checkpoint.stored(name), runpy.run_path(str(ROOT / "ddp_run.py"))
    if found.tokenizer not in ("gpt2", "bytes"):
        wrong = f"tokens of {found.tokenizer!r:.80}"
        raise BadInput(f"{name} was trained on {wrong}: expected those of gpt2 or bytes")
    shape = {key: value for key, value in found.shape.items() if key != "vocab_size"}  # 50304
    # Before a model of such a shape is made, which may take all memory.
    C, positions = shape["n_embd"], found.weights.get("transformer.wpe.weight")
    fits = getattr(positions, "shape", None) == (shape["block_size"], C)
    if not fits or C % shape["n_head"] or shape["n_layer"] > len(found.weights):
        raise BadInput(f"{name} is damaged: its weights are not of a GPT-2 with {shape}")
    model = script["GPT"](script["GPTConfig"](**shape))
    checkpoint.fill(model, found)
    return found, model


def harmless(text: str) -> str:
    """`text` without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
