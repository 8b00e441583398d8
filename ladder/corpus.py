"""Corpora: one text, one token shard or a folder of shards as one stream of token ids.

The default corpus, tinyshakespeare, ships as a shard. A text is tokenized in memory at each start;
data/prepare.py makes shards of it, once. A shard has the `.bin` layout of llm.c and
modded-nanogpt: a header of 256 little-endian int32 (magic 20240520, version 1, token count,
zeros), then the tokens as uint16.
"""

import hashlib
import os
import re
import shlex
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ladder.checkout import ROOT
from ladder.errors import UsageError, chain_of

if TYPE_CHECKING:
    import tiktoken

# Of the text whose tokens are in data/tinyshakespeare.bin.
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
GPT2_VOCAB_SIZE = 50257
END_OF_TEXT = 50256
MARK = "<|endoftext|>"  # as datasets write END_OF_TEXT between documents
MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
BIN = "[!.]*.[bB][iI][nN]"  # not the ._*.bin of macOS
SPLIT = re.compile("(?<![a-z])(train|val|valid|validation|test)(?![a-z])")
# encoder.json and vocab.bpe as tiktoken caches them, under the SHA-1 of their URLs.
VOCABULARY_FILES = (
    "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
    "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
)
# Of both, one after the other.
VOCABULARY_SHA256 = "00f404d36600411e497efb3df08d3b4e094f0820e2595afcb7cbd0c4353d4fcb"


@dataclass
class Corpus:
    """A token stream over one or more shards, and the name and hash that logs carry."""

    name: str
    sha256: str
    shards: list[np.ndarray]  # each uint16, 1-D
    first: int = 0  # this part of all tokens: first … last-1
    last: int | None = None

    def __post_init__(self):
        self.ends = np.cumsum([len(shard) for shard in self.shards])
        if self.last is None:
            self.last = int(self.ends[-1])

    def __len__(self) -> int:
        return self.last - self.first

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens start … start+count-1 of this part, across shard ends: uint16, (count,)."""
        index = int(np.searchsorted(self.ends, self.first + start, side="right"))
        left = int(self.ends[index]) - self.first - start  # tokens from here to this shard's end
        part = self.shards[index][-left:][:count]
        if len(part) == count:
            return part
        rest = self.read(start + left, count - left)
        return np.concatenate((part, rest))


def load_corpus(path: str | None, print0: Callable) -> Corpus:
    """The corpus at `path` (a text, a shard, a folder of shards), or the default.

    `print0` is called with a line for what a user may not expect. Raises UsageError.
    """
    return _load(path, print0)[0]


def load_splits(path: str | None, print0: Callable) -> tuple[Corpus, Corpus]:
    """The corpus to train on, and held-out text: a folder's val shards, else the last 10 %."""
    corpus, held_out = _load(path, print0)
    if held_out:
        return corpus, held_out
    cut = len(corpus) - len(corpus) // 10
    end = replace(corpus, name=f"{corpus.name}'s last 10 %", first=cut)
    return replace(corpus, last=cut), end


def _load(path: str | None, print0: Callable) -> tuple[Corpus, Corpus | None]:
    """The corpus at `path`, and that of its val shards or None."""
    try:
        if path is None:
            shard = read_shard(ROOT / "data" / "tinyshakespeare.bin")
            return Corpus("tinyshakespeare", TINYSHAKESPEARE_SHA256, [shard]), None
        where = Path(path)
        where.stat()  # raises OSError if it is not there, before a vocabulary is looked for
        if where.is_dir():
            return _read_folder(where, print0)
        if where.suffix.lower() == ".bin":
            return _corpus_of(where.stem, [read_shard(where)]), None
        return tokenize(where.stem, [where], print0), None
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror}") from error


# ------------------------------------------------------------------ shards


def read_shard(path: Path) -> np.ndarray:
    """The tokens of a shard, mapped into memory: uint16, 1-D. Raises UsageError, OSError."""
    import torch  # not above: --help of a subcommand works without it

    count = (path.stat().st_size - HEADER_BYTES) // 2
    if np.fromfile(path, dtype="<i4", count=3).tolist() != [MAGIC, VERSION, count]:
        raise UsageError(
            f"{path} is not a whole shard of GPT-2's tokens: it is damaged, or of another program "
            "(nanoGPT's train.bin has no header); make shards of its text with data/prepare.py"
        )
    # Unlike NumPy's map this one keeps no file open: a thousand shards are more than many systems
    # let a program open.
    first = HEADER_BYTES // 2
    try:
        words = torch.from_file(str(path), size=first + count, dtype=torch.uint16).numpy()
    except RuntimeError:  # some network drives map no files
        words = np.fromfile(path, dtype="<u2")
    return words[first:]


def _read_folder(folder: Path, print0: Callable) -> tuple[Corpus, Corpus | None]:
    """The shards to train on in a folder, and apart from them those that are held out."""
    files = [path for path in sorted(folder.iterdir()) if path.match(BIN)]
    files.sort(key=lambda path: split_of(path) == "train")  # so that none is on both sides
    splits = {"train": [], "val": [], "test": []}
    seen = set()
    for path in files:
        if np.fromfile(path, "<i4", 1).tolist() == [MAGIC] and is_new(path, seen):
            splits[split_of(path)].append(read_shard(path))
    train, val, _ = splits.values()
    if not train:
        raise UsageError(_why_none_to_train_on(folder, files))
    left_out = len(files) - len(train) - len(val)
    if left_out:
        print0(
            f"note  {left_out} of {len(files)} .bin files are not read: for tests, no shards, or "
            "other names of one"
        )
    name = folder.resolve().name
    return _corpus_of(name, train), _corpus_of(name, val) if val else None


def _why_none_to_train_on(folder: Path, files: list[Path]) -> str:
    """What to do with a folder of these .bin files. Raises UsageError if one is no shard."""
    for path in files:
        read_shard(path)
    if files:
        return f"all shards (.bin) in {folder} are for val or test: there is none to train on"
    for path in folder.glob(f"*/{BIN}"):
        return f"{folder} has no shards (.bin), but {path.parent} has such files: name that"
    make = f"`python data/prepare.py {shlex.quote(str(folder))}` makes them of texts"
    return f"{folder} has no shards (.bin; not the .npy of build-nanogpt): {make}"


def split_of(shard: Path) -> str:
    """`train`, `val` or `test`, by the last such word in a shard's name (else `train`).

    As in fineweb_val_000000.bin, and in val_train_000000.bin, made of val.txt; not in medieval.bin.
    """
    *_, word = ["train", *SPLIT.findall(shard.stem.lower())]
    return "val" if word.startswith("val") else word


def is_new(path: Path, seen: set) -> bool:
    """Whether `seen` does not have this file or folder yet, by any name; it is then added.

    Links give a text several names, and may have a folder in itself. Raises OSError.
    """
    found = path.stat()
    identity = (found.st_dev, found.st_ino)
    before = len(seen)
    seen.add(identity)
    return len(seen) > before


def _corpus_of(name: str, shards: list[np.ndarray]) -> Corpus:
    """A corpus of token shards. Its hash covers the size and the first 512 KiB of each."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes())
    return Corpus(name, digest.hexdigest(), shards)


# ------------------------------------------------------------------ texts


def tokenize(name: str, files: list[Path], print0: Callable) -> Corpus:
    """A corpus of texts (UTF-8) in this order, with <|endoftext|> between them.

    Raises UsageError, OSError.
    """
    digest = hashlib.sha256()
    tokens = array("H")  # uint16: a list would need ten times the memory
    for path in files:
        if tokens:
            tokens.append(END_OF_TEXT)
        try:
            for some in encode(read_blocks(path, digest, print0)):
                tokens.extend(some)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is no .bin, and no text in UTF-8: {error.reason}; iconv -c leaves out "
                "what is not"
            ) from error
    if not tokens:
        raise UsageError(f"{name} has no text: 0 tokens")
    return Corpus(name, digest.hexdigest(), [np.frombuffer(tokens, dtype=np.uint16)])


def read_blocks(path: Path, digest: "hashlib._Hash", print0: Callable) -> Iterator[str]:
    """A text, 2**18 characters at a time. Raises OSError, UnicodeDecodeError."""
    with path.open(encoding="utf-8", newline="") as file:
        for number, block in enumerate(iter(partial(file.read, 2**18), ""), 1):
            digest.update(block.encode())
            yield block
            if number % 80 == 0:  # every three seconds
                print0(f"note  {number // 4} million characters of {path.name} are tokenized")


def encode(blocks: Iterable[str]) -> Iterator[list[int]]:
    """The tokens of a text that comes in blocks: those of the whole text.

    It is cut before a blank or a newline that follows a letter or a sign: there a word of GPT-2's
    pattern ends, whatever follows. What is behind the last such place waits for the next block.
    """
    encode_all = partial(gpt2_vocabulary().encode, allowed_special={MARK})
    text = ""
    for block in blocks:
        text += block
        found = re.match(r"(?s).*\S(?=[ \n])", text)
        if found:
            yield encode_all(found[0])
            text = text[found.end() :]
    yield encode_all(text)


# ------------------------------------------------------------------ GPT-2's vocabulary


def gpt2_vocabulary() -> "tiktoken.Encoding":
    """tiktoken's GPT-2 encoding. Raises UsageError if neither its cache nor the network has it."""
    import tiktoken

    try:
        return tiktoken.get_encoding("gpt2")
    except (OSError, ValueError) as error:
        folder = cache_folder()
        why = "it is damaged"
        for name in VOCABULARY_FILES:
            try:
                Path(folder, name).read_bytes()
            except OSError as unread:
                why = unread.strerror
        *_, cause = chain_of(error)  # of a proxy, a name that is not found, a certificate
        raise UsageError(
            f"no GPT-2 vocabulary in {folder or 'a cache'}: {why}, and no network brought it "
            f"({type(error).__name__}: {cause}); "
            "name a folder of yours in TIKTOKEN_CACHE_DIR, and connect once, or copy "
            f"{' and '.join(VOCABULARY_FILES)} into it from that of another machine"
        ) from error


def cache_folder() -> str:
    """Where tiktoken looks for GPT-2's vocabulary; empty if the user wants no cache."""
    usual = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    return os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", usual))
