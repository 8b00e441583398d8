"""Turn text into token shards that every script here, llm.c and modded-nanogpt can read.

    python data/prepare.py my/texts              a text file, or all .txt and .md files in a folder
    python baseline.py --data data/texts         then train on them

Scripts tokenize a text at each start, 7 MB a second. Shards are for folders of texts, for corpora
of more than some 50 MB, for a fixed held-out split, and for other programs.
"""

import os
import shutil
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ladder.cli import Parser, at_least, path
from ladder.commands.main import program
from ladder.corpus import MAGIC, VERSION, is_new, tokenize
from ladder.disk import write_atomic
from ladder.errors import UsageError
from ladder.text import say

SHARD_TOKENS = 100_000_000


def write_shard(path: Path, tokens: np.ndarray):
    """Write `tokens` (uint16, 1-D, fewer than 2**31) as one shard."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    write_atomic(path, np.concatenate((header.view("<u2"), tokens)))


def texts_in(path: Path, seen: set) -> Iterator[Path]:
    """A text file, or the .txt and .md files in and below a folder, in order, no hidden ones.

    What is in `seen` by another name is left out, and a note says so. Raises OSError.
    """
    if not is_new(path, seen):
        say(f"note  {path} is left out: it is read already, or held out")
    elif path.is_dir():
        for inner in sorted(path.iterdir()):
            is_text = inner.is_dir() or inner.suffix.lower() in (".txt", ".md")
            if is_text and not inner.name.startswith("."):
                yield from texts_in(inner, seen)
    else:
        yield path


def write_split(folder: Path, name: str, tokens: np.ndarray):
    """Write the shards NAME_000000.bin, … of one split, the last may be shorter."""
    for number, start in enumerate(range(0, len(tokens), SHARD_TOKENS)):
        some = tokens[start : start + SHARD_TOKENS]
        path = folder / f"{name}_{number:06d}.bin"
        write_shard(path, some)
        say(f"{path.name}: {len(some)} tokens")


def parse(argv: list[str] | None) -> Namespace:
    """The flags."""
    parser = Parser(__doc__)
    add = parser.add_argument
    add("text", type=path, help="text file or folder")
    add("--out", type=path, help="new folder for the shards (default: data/NAME)")
    val = parser.add_mutually_exclusive_group()
    val.add_argument("--val", type=path, help="text file or folder that is held out")
    share = at_least(0, float, below=1)
    val.add_argument("--val-fraction", type=share, default=0.0, help="of the end (default: 0)")
    return parser.parse_args(argv)


def prepare(argv: list[str] | None):
    """Tokenize a text and write its shards, NAME_train_000000.bin, … and NAME_val_000000.bin, …,
    into a new folder. Raises UsageError.
    """
    args = parse(argv)
    source = Path(os.path.abspath(args.text))  # of a link the name is its own, not its target's
    name = source.name if source.is_dir() else source.stem
    out = Path(args.out or Path(__file__).with_name(name))
    unfinished = out / ".unfinished"
    if out.exists() and os.listdir(out) not in ([], [unfinished.name]):
        raise UsageError(f"{out} exists already: delete it, or choose another --out")
    seen = set()
    held_out = list(texts_in(Path(args.val), seen)) if args.val else []
    texts = list(texts_in(source, seen))
    if not texts:
        raise UsageError(f"{source} has no .txt or .md files, or all are held out")
    # Before the text is read, which may take an hour. Nothing trains on a part of the shards: those
    # in here are not read, and all come out at once.
    shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
    unfinished.mkdir(parents=True)
    try:
        (train,) = tokenize(name, texts, say).shards
        cut = len(train) - int(len(train) * args.val_fraction)
        splits = {"train": train[:cut], "val": train[cut:]}
        if held_out:
            (splits["val"],) = tokenize(args.val, held_out, say).shards
        for split, tokens in splits.items():
            write_split(unfinished, f"{name}_{split}", tokens)
        for shard in unfinished.iterdir():
            shard.rename(out / shard.name)
    finally:
        shutil.rmtree(unfinished)
    say(f"written: {out}")


if __name__ == "__main__":
    raise SystemExit(program(prepare, None))
