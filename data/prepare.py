"""Turn text into token shards that every script here, llm.c and modded-nanogpt can read.

    python data/prepare.py my/texts              a text file, or all .txt and .md files in a folder
    python baseline.py --data data/texts         then train on them

Scripts tokenize a text at each start, 7 MB a second. Shards are for folders of texts, for corpora
of more than some 50 MB, for a fixed held-out split, and for other programs. The disk needs room for
the tokens twice, 4 bytes each, until it ends.
"""

import hashlib
import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ladder.cli import Parser, at_least, path
from ladder.commands.main import program
from ladder.corpus import MAGIC, VERSION, seen_as, tokens_of
from ladder.disk import lock, write_atomic
from ladder.errors import UsageError
from ladder.text import say

SHARD_TOKENS = 100_000_000
UNFINISHED = ".unfinished-"  # how the name of the folder of a run under way begins


def write_shard(path: Path, tokens: np.ndarray):
    """Write `tokens` (uint16, 1-D, fewer than 2**31) as one shard."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    write_atomic(path, np.concatenate((header.view("<u2"), tokens)))


def texts_in(path: Path, seen: dict, others: list) -> Iterator[Path]:
    """A text file, or the .txt and .md files in and below a folder, in order, no hidden ones.

    Other files go to `others`. A text that is in `seen` by another name, or as a copy, is left out,
    and a note says so. Raises OSError.
    """
    first = seen_as(path, seen)
    if first:
        say(f"note  {path} is left out: it is read already, or held out, as {first}")
    elif path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.name.startswith("."):
                continue
            if inner.is_dir() or inner.suffix.lower() in (".txt", ".md"):
                yield from texts_in(inner, seen, others)
            else:
                others.append(inner)
    else:
        yield path


def write_tokens(path: Path, texts: list[Path]) -> int:
    """Write the tokens of texts to a file as they come: memory holds few of them. Returns how many.

    Raises UsageError, OSError.
    """
    with path.open("wb") as file:
        for some in tokens_of(texts, hashlib.sha256(), say):
            np.array(some, np.uint16).tofile(file)
    count = path.stat().st_size // 2
    if not count:
        raise UsageError(f"{texts[0]} has no text: 0 tokens")
    return count


def write_split(folder: Path, name: str, tokens: Path, first: int, last: int):
    """Write the tokens first … last-1 of a file as shards NAME_000000.bin, …; the last may be
    shorter."""
    for number, start in enumerate(range(first, last, SHARD_TOKENS)):
        count = min(SHARD_TOKENS, last - start)
        path = folder / f"{name}_{number:06d}.bin"
        write_shard(path, np.fromfile(tokens, np.uint16, count, offset=2 * start))
        say(f"{path.name}: {count} tokens")


def require_empty(out: Path, but: str):
    """Raise UsageError if a folder has files, which may be the user's texts, but for its lock and
    those whose names begin with `but`."""
    for name in os.listdir(out) if out.exists() else ():
        if name == ".lock" or name.startswith(but):
            continue
        why = "has files already: "
        if name.startswith(UNFINISHED):
            why = f"has {name} of a run that was killed: delete that, or "
        other = f"{os.path.abspath(out)}-shards"
        raise UsageError(f"{out} {why}choose a new folder (--out), such as {other}")


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
    require_empty(out, UNFINISHED)  # of these the lock will tell whether a run is at work
    seen, others = {}, []
    held_out = list(texts_in(Path(args.val), seen, others)) if args.val else []
    texts = list(texts_in(source, seen, others))
    if others:
        say(f"note  files that are no .txt or .md are left out: {len(others)}, as {others[0]}")
    if not texts:
        raise UsageError(f"{source} has no .txt or .md files, or all are held out")
    out.mkdir(parents=True, exist_ok=True)
    # Nothing trains on a part of the shards: those in the inner folder are not read, and all come
    # out at once.
    with lock(out), TemporaryDirectory(prefix=UNFINISHED, dir=out) as inner:
        require_empty(out, Path(inner).name)
        tokens, val_tokens = Path(inner, "tokens"), Path(inner, "val_tokens")
        count = write_tokens(tokens, texts)
        cut = count - int(count * args.val_fraction)
        write_split(Path(inner), f"{name}_train", tokens, 0, cut)
        write_split(Path(inner), f"{name}_val", tokens, cut, count)
        if held_out:
            count = write_tokens(val_tokens, held_out)
            write_split(Path(inner), f"{name}_val", val_tokens, 0, count)
        require_empty(out, Path(inner).name)  # some drives have no locks
        for shard in Path(inner).glob("*.bin"):
            shard.rename(out / shard.name)
    say(f"written: {out}")


if __name__ == "__main__":
    raise SystemExit(program(prepare, None))
