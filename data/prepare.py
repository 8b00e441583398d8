"""Turn text into token shards that every script here, llm.c and modded-nanogpt can read.

    python data/prepare.py my/texts              a text file or a folder of .txt and .md files
    python baseline.py --data data/texts         then train on them
    python data/prepare.py                       tinyshakespeare, into data/tinyshakespeare

Scripts tokenize a text at each start, 7 MB a second. Shards are for corpora of more than some
50 MB, for a fixed held-out split, and for other programs.
"""

import os
import shutil
from pathlib import Path

import numpy as np

from ladder.cli import Parser
from ladder.commands.main import program
from ladder.corpus import MAGIC, UNFINISHED, VERSION, load_files
from ladder.errors import UsageError
from ladder.files import ROOT, lock, require_own, write_atomic
from ladder.text import show

MOST_TOKENS = 2**31 - 1  # per shard: its header stores the count as int32


def write_shard(path: Path, tokens: np.ndarray):
    """Write `tokens` (uint16, 1-D, at most MOST_TOKENS) as one shard."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    write_atomic(path, header.tobytes() + tokens.astype("<u2", copy=False).tobytes())


def main(argv=None):
    """The exit status of prepare()."""
    return program(prepare, argv)


def prepare(argv):
    """Tokenize a text and write its shards, NAME_train_000000.bin, … and NAME_val_000000.bin, …,
    into a new folder. Raises UsageError.

    The val shards are the val files of a folder that has some, else what --val-fraction says.
    """
    require_own(Path(__file__), "prepare.py is in", "PYTHONPATH={}")
    parser = Parser(__doc__)
    add = parser.add_argument
    add("text", nargs="?", help="text file or folder (default: tinyshakespeare)")
    add("--out", help="new folder for the shards (default: data/NAME)")
    add("--shard-tokens", type=int, default=100_000_000, help="default: 100M")
    add("--val-fraction", type=float, default=0.0, help="held out at the end (default: 0)")
    args = parser.parse_args(argv)
    if not 1 <= args.shard_tokens <= MOST_TOKENS:
        parser.error(f"--shard-tokens must be in [1, {MOST_TOKENS}]")
    if not 0 <= args.val_fraction < 1:
        parser.error("--val-fraction must be in [0, 1)")
    source = Path(args.text or "tinyshakespeare")
    name = source.resolve().name if source.is_dir() else source.stem
    out = Path(args.out or ROOT / "data" / name)
    unfinished = out / UNFINISHED
    if out.exists() and (out.is_file() or {*os.listdir(out)} - {UNFINISHED}):
        raise UsageError(f"{out} exists already: delete it, or choose another --out")
    out.mkdir(parents=True, exist_ok=True)  # before the text is read, which may take an hour
    corpus, held_out = load_files(args.text, print0=show)
    splits = [("train", corpus, 0, len(corpus))]
    if held_out:
        if args.val_fraction:
            raise UsageError(f"{source} has held-out files of its own: leave --val-fraction out")
        splits.append(("val", held_out, 0, len(held_out)))
    elif args.val_fraction:
        cut = len(corpus) - int(len(corpus) * args.val_fraction)
        if cut == len(corpus):
            share = f"--val-fraction {args.val_fraction} of {cut} tokens"
            raise UsageError(f"{share} is not even one")
        splits = [("train", corpus, 0, cut), ("val", corpus, cut, len(corpus))]
    # Nothing trains on a part of them: no corpus is read from a folder with this one in it.
    unfinished.mkdir(exist_ok=True)
    with lock(unfinished):
        for shard in unfinished.glob("*.bin"):  # of a run that was killed
            shard.unlink()
        for split, text, first, last in splits:
            for number, start in enumerate(range(first, last, args.shard_tokens)):
                name = f"{corpus.name}_{split}_{number:06d}.bin"
                tokens = text.read(start, min(args.shard_tokens, last - start))
                write_shard(unfinished / name, tokens)
                show(f"{out / name}: {len(tokens)} tokens")
        for shard in unfinished.glob("*.bin"):
            shard.rename(out / shard.name)
    shutil.rmtree(unfinished)


if __name__ == "__main__":
    raise SystemExit(main())
