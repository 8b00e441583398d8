"""Make a folder of a model that ddp_run.py trained, as transformers loads it.

    ladder export checkpoints/20261122-101500-4242 my-gpt2     the best model of a run

The folder gets config.json, the weights in FP32 (model.safetensors, or pytorch_model.bin where
safetensors is not installed) and, where the GPT-2 vocabulary is at hand, the tokenizer. The rows
that pad the vocabulary are left out. Then

    transformers.AutoModelForCausalLM.from_pretrained("my-gpt2")

computes the same logits, and `ddp_run.py --init my-gpt2` goes on training.
"""

import argparse
import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ladder.commands.process import if_slow, new_folder
from ladder.commands.sample import load
from ladder.corpus import END_OF_TEXT, GPT2_VOCAB_SIZE, VOCABULARY_TIMEOUT_S, within
from ladder.files import write_whole

# OpenAI's files, which tiktoken loads, under the names that transformers gives them.
VOCABULARY = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
TOKENIZER = {
    "merges.txt": (
        "vocab.bpe",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    ),
    "vocab.json": (
        "encoder.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="CKPT", help="a checkpoint, or a folder of them (its best)")
    add("out", metavar="OUT", help="the folder to make")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Returns the exit status."""
    with if_slow():
        import torch  # not above: --help works without it

        from ladder import checkpoint

    found, model = load(args.model)
    folder = new_folder(args.out, "export")
    weights = {name: checkpoint.transposed(name, w) for name, w in model.state_dict().items()}
    weights["transformer.wte.weight"] = weights["transformer.wte.weight"][:GPT2_VOCAB_SIZE]
    more = found.shape["vocab_size"] - GPT2_VOCAB_SIZE
    if more and Path(args.model, "config.json").exists():  # a checkpoint's own are padding
        print(
            f"note  left out: the last {more} rows of the embedding, which are not GPT-2's tokens"
        )
    del weights["lm_head.weight"]  # tied
    files = {}
    if find_spec("safetensors"):
        from safetensors.torch import save

        files["model.safetensors"] = save(weights, metadata={"format": "pt"})
    else:
        files["pytorch_model.bin"] = partial(torch.save, weights)
    if found.tokenizer != "gpt2":
        print("note  it was trained on bytes, so no tokenizer: a token is a byte")
    elif vocabulary := tokenizer_files():
        limit = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": found.shape["block_size"]}
        files |= vocabulary | {"tokenizer_config.json": json.dumps(limit, indent=1).encode()}
    else:
        missing = "no network, and none in TIKTOKEN_CACHE_DIR"
        print(f"note  no GPT-2 vocabulary ({missing}): no tokenizer")
    settings = config(found.shape) | {"ladder_tokenizer": found.tokenizer}  # for --init, sample
    files["config.json"] = json.dumps(settings, indent=1).encode()
    for name, content in files.items():  # config.json last: without it no folder is loaded
        write_whole(folder / name, content)
    print(f"written: {folder}: {', '.join(files)}")
    return 0


def config(shape: dict[str, int]) -> dict:
    """config.json of transformers for a GPT of the scripts."""
    from ladder.checkpoint import FIXED

    return {
        "architectures": ["GPT2LMHeadModel"],
        **FIXED,
        **{name: shape[name] for name in ("n_layer", "n_head", "n_embd")},
        "n_positions": shape["block_size"],
        "vocab_size": GPT2_VOCAB_SIZE,
        **dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0.0),
        **dict.fromkeys(("bos_token_id", "eos_token_id"), END_OF_TEXT),
    }


def tokenizer_files() -> dict[str, bytes]:
    """GPT-2's vocabulary and merges, from tiktoken's cache or the network; empty without them."""
    from tiktoken.load import read_file_cached

    try:
        return {
            name: within(VOCABULARY_TIMEOUT_S, read_file_cached, VOCABULARY + theirs, sha256)
            for name, (theirs, sha256) in TOKENIZER.items()
        }
    except (OSError, ValueError):  # no network, or not the vocabulary
        return {}
