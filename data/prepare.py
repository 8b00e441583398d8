"""Turn text into token shards that every script here, llm.c and modded-nanogpt can read.

    python data/prepare.py                       tinyshakespeare, into data/tinyshakespeare
    python data/prepare.py my/texts              a text file or a folder of .txt and .md files
    python baseline.py --data data/texts         then train on them

Nothing needs preparing for a first run: the scripts tokenize a text themselves. Shards are for
corpora too large for that, for a fixed held-out split, and for other programs.
"""

import argparse
import re
import shutil
import tempfile
from pathlib import Path

from ladder.cli import path, signals_to
from ladder.commands import program
from ladder.corpus import load_corpus
from ladder.errors import BadInput
from ladder.files import DATA_DIR, lock
from ladder.log import show
from ladder.shards import MOST_TOKENS, write_shard


def main(argv=None):
    """Write NAME_train_000000.bin, … and, with --val-fraction, NAME_val_000000.bin, …"""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "text", nargs="?", type=path, help="text file or folder (default: tinyshakespeare)"
    )
    parser.add_argument("--out", type=path, help="folder for the shards (default: data/NAME)")
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, help="default: 100M")
    parser.add_argument(
        "--val-fraction", type=float, default=0.0, help="held out at the end (default: 0)"
    )
    args = parser.parse_args(argv)
    if not 1 <= args.shard_tokens <= MOST_TOKENS or not 0 <= args.val_fraction < 1:
        parser.error(f"--shard-tokens must be in [1, {MOST_TOKENS}], --val-fraction in [0, 1)")
    return program(prepare, args.text, args.out, args.shard_tokens, args.val_fraction)


def prepare(text, out, shard_tokens, val_fraction):
    """Tokenize `text` and write its shards into `out`. Raises BadInput; overwrites nothing."""
    corpus = load_corpus(text, say=show)
    if corpus.tokenizer != "gpt2":
        raise BadInput("shards hold GPT-2 tokens: set TIKTOKEN_CACHE_DIR or connect once")
    if not out and corpus.name.strip(".") in ("", "shards"):  # data/shards is the cache
        raise BadInput(f"{corpus.name!r} cannot name a folder of data/: name one with --out")
    out = Path(out or DATA_DIR / corpus.name)
    held_out = int(len(corpus) * val_fraction)
    if val_fraction and not held_out:
        raise BadInput(f"--val-fraction {val_fraction} of {len(corpus)} tokens is not even one")
    train = len(corpus) - held_out
    out.mkdir(parents=True, exist_ok=True)
    # Nothing trains on a part of them: the shards get into `out` when the last one is written.
    temporary = tempfile.TemporaryDirectory(prefix="unfinished-shards-", dir=out)
    with lock(out), temporary as unfinished:
        if any(out.glob("*.bin")):
            raise BadInput(f"{out} already holds shards: delete them or choose another --out")
        ours = re.compile(r".+(_(train|val)_\d{6}\.bin|\.\d+\.tmp)")
        for old in set(out.glob("unfinished-shards-????????")) - {Path(unfinished)}:
            files = [*old.iterdir()] if old.is_dir() else []
            if files and all(ours.fullmatch(p.name) and p.is_file() for p in files):
                show(f"note  deleted {old}, of a data/prepare.py that was killed")
                shutil.rmtree(old)
        for split, first, last in (("train", 0, train), ("val", train, len(corpus))):
            for number, start in enumerate(range(first, last, shard_tokens)):
                name = f"{corpus.name}_{split}_{number:06d}.bin"
                tokens = corpus.read(start, min(shard_tokens, last - start))
                write_shard(Path(unfinished, name), tokens)
                show(f"{out / name}: {len(tokens)} tokens")
        with signals_to(lambda *_: None):
            for path in sorted(Path(unfinished).iterdir(), reverse=True):  # val first
                path.rename(out / path.name)


if __name__ == "__main__":
    raise SystemExit(main())
