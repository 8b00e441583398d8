"""Turn text into token shards that every script here, llm.c and modded-nanogpt can read.

    python data/prepare.py                       tinyshakespeare, into data/tinyshakespeare
    python data/prepare.py my/texts              a text file or a folder of .txt and .md files
    python baseline.py --data data/texts         then train on them

Nothing needs preparing for a first run: the scripts tokenize a text themselves. Shards are for
corpora too large for that, for a fixed held-out split, and for other programs.
"""

import argparse
import sys
from pathlib import Path

from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import DATA_DIR
from ladder.shards import write_shard


def main(argv=None):
    """Write NAME_train_000000.bin, … and, with --val-fraction, NAME_val_000000.bin, …"""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="?", help="text file or folder (default: tinyshakespeare)")
    parser.add_argument("--out", type=Path, help="folder for the shards (default: data/NAME)")
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, help="default: 100M")
    parser.add_argument(
        "--val-fraction", type=float, default=0.0, help="held out at the end (default: 0)"
    )
    args = parser.parse_args(argv)
    if args.shard_tokens < 1 or not 0 <= args.val_fraction < 1:
        parser.error("--shard-tokens must be at least 1, --val-fraction in [0, 1)")
    try:
        prepare(args.text, args.out, args.shard_tokens, args.val_fraction)
    except BadInput as error:
        print(f"error {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:  # a full disk, or --out is no folder
        print(f"error cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None


def prepare(text, out, shard_tokens, val_fraction):
    """Tokenize `text` and write its shards into `out`. Raises BadInput; overwrites nothing."""
    corpus = load_corpus(text, say=print)
    if corpus.tokenizer != "gpt2":
        raise BadInput("shards hold GPT-2 tokens: set TIKTOKEN_CACHE_DIR or connect once")
    out = out or DATA_DIR / corpus.name
    if any(out.glob("*.bin")):
        raise BadInput(f"{out} already holds shards: delete them or choose another --out")
    train = len(corpus) - int(len(corpus) * val_fraction)
    for split, first, last in (("train", 0, train), ("val", train, len(corpus))):
        for number, start in enumerate(range(first, last, shard_tokens)):
            path = out / f"{corpus.name}_{split}_{number:06d}.bin"
            tokens = corpus.read(start, min(shard_tokens, last - start))
            write_shard(path, tokens)
            print(f"{path}: {len(tokens)} tokens")


if __name__ == "__main__":
    main()
