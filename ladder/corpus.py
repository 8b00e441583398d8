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
HELD_OUT_FIRST = ("val", "test", "train")
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
            shard = read_shard(ROOT / "data" / "tinyshakespeare.bin", print0)
            return Corpus("tinyshakespeare", TINYSHAKESPEARE_SHA256, [shard]), None
        where = Path(path)
        where.stat()  # raises OSError if it is not there, before a vocabulary is looked for
        if where.is_dir():
            return _read_folder(where, print0)
        if where.suffix.lower() == ".bin":
            return _corpus_of(where.stem, [read_shard(where, print0)], print0), None
        return tokenize(where.stem, [where], print0), None
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror}") from error


# ------------------------------------------------------------------ shards


def read_shard(path: Path, print0: Callable) -> np.ndarray:
    """The tokens of a shard, mapped into memory: uint16, 1-D. Raises UsageError, OSError."""
    import torch  # not above: --help of a subcommand works without it

    count = (path.stat().st_size - HEADER_BYTES) // 2
    if np.fromfile(path, dtype="<i4", count=3).tolist() != [MAGIC, VERSION, count]:
        raise UsageError(
            f"{path} is not a whole shard of GPT-2's tokens: if it is damaged, get it again; if it "
            "is of another program, move it elsewhere, and make shards of its text with "
            "data/prepare.py (nanoGPT's train.bin has no header)"
        )
    # Unlike NumPy's map this one keeps no file open: a thousand shards are more than many systems
    # let a program open.
    first = HEADER_BYTES // 2
    try:
        words = torch.from_file(str(path), size=first + count, dtype=torch.uint16).numpy()
    except RuntimeError:  # some network drives map no files
        words = np.fromfile(path, dtype="<u2")
    tokens = words[first:]
    for eighth in range(9):  # the last one is the end
        start = (count - 512) * eighth // 8
        if count >= 512 and not tokens[start : start + 512].any():
            print0(f"note  {path} has zeros in it, as if a download broke off: get it again")
            break
    return tokens


def _read_folder(folder: Path, print0: Callable) -> tuple[Corpus, Corpus | None]:
    """The shards to train on in a folder, and apart from them those that are held out.

    A file that is no whole shard ends this, unless it is for tests: without it other text would be
    trained on, or held out. The same tokens are read once.
    """
    files = []
    for path in sorted(folder.iterdir()):
        if path.match(BIN):
            files.append(path)
        elif ".bin." in path.name.lower():  # as of a download that broke off, or a second one
            print0(f"note  {path.name} is not read: its name does not end in .bin")
    files.sort(key=lambda path: HELD_OUT_FIRST.index(split_of(path)))  # so none is on both sides
    splits = {"val": [], "test": [], "train": []}
    seen = {}
    for path in files:
        split = split_of(path)
        shard = path if split == "test" else read_shard(path, print0)
        first = seen_as(path, seen)
        if first:
            print0(f"note  {path.name} is not read: it has the tokens of {first.name}")
        else:
            splits[split].append(shard)
    if splits["test"]:
        print0(f"note  shards that are for tests are not read: {len(splits['test'])}")
    if not splits["train"]:
        make = f"`python data/prepare.py {shlex.quote(str(folder))}` makes them of texts"
        for inner in folder.glob(f"*/{BIN}"):
            make = f"{inner.parent} has such files: name that"
        raise UsageError(
            f"{folder} has no shards (.bin, not .npy) to train on; those for val or test do not "
            f"count: {make}"
        )
    name = folder.resolve().name
    held_out = _corpus_of(name, splits["val"], print0) if splits["val"] else None
    return _corpus_of(name, splits["train"], print0), held_out


def split_of(shard: Path) -> str:
    """`train`, `val` or `test`, by the last such word in a shard's name (else `train`).

    As in fineweb_val_000000.bin, and in val_train_000000.bin, made of val.txt; not in medieval.bin.
    """
    *_, word = ["train", *SPLIT.findall(shard.stem.lower())]
    return "val" if word.startswith("val") else word


def seen_as(path: Path, seen: dict) -> Path | None:
    """The path by which `seen` has this file or folder already; else None, and it is added.

    Links give a text several names, copies too, and a link may have a folder in itself. Files are
    the same by their size and the digest of their first MiB: some drives number no files. Raises
    OSError.
    """
    what = path.resolve()
    if not path.is_dir():
        with path.open("rb") as file:
            what = (path.stat().st_size, hashlib.sha256(file.read(2**20)).digest())
    first = seen.get(what)
    seen.setdefault(what, path)
    return first


def _corpus_of(name: str, shards: list[np.ndarray], print0: Callable) -> Corpus:
    """A corpus of token shards. Its hash covers the size and the first 512 KiB of each."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes())
    some = shards[0][: 2**18]
    if len(some) == 2**18 and some.max() < 40_000:
        print0(
            f"note  {name} has no token above {some.max()} in its first {len(some)}: GPT-2's go up "
            f"to {END_OF_TEXT}; is it of another vocabulary?"
        )
    return Corpus(name, digest.hexdigest(), shards)


# ------------------------------------------------------------------ texts


def tokenize(name: str, files: list[Path], print0: Callable) -> Corpus:
    """A corpus of texts (UTF-8) in this order, with <|endoftext|> between them.

    Raises UsageError, OSError.
    """
    digest = hashlib.sha256()
    tokens = array("H")  # uint16: a list would need ten times the memory
    for some in tokens_of(files, digest, print0):
        tokens.extend(some)
    if not tokens:
        raise UsageError(f"{name} has no text: 0 tokens")
    return Corpus(name, digest.hexdigest(), [np.frombuffer(tokens, dtype=np.uint16)])


def tokens_of(files: list[Path], digest: "hashlib._Hash", print0: Callable) -> Iterator[list[int]]:
    """The tokens of texts, some at a time, as `tokenize` has them. Raises UsageError, OSError."""
    between = []
    for path in files:
        yield between
        try:
            for some in encode(read_blocks(path, digest, print0)):
                yield some
                if some:
                    between = [END_OF_TEXT]
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is no .bin, and no text in UTF-8: {error.reason}; iconv -c leaves out "
                "what is not"
            ) from error


def read_blocks(path: Path, digest: "hashlib._Hash", print0: Callable) -> Iterator[str]:
    """A text, 2**18 characters at a time. Raises UsageError, OSError, UnicodeDecodeError."""
    with path.open(encoding="utf-8", newline="") as file:
        for number, block in enumerate(iter(partial(file.read, 2**18), ""), 1):
            if "\0" * 512 in block:
                raise UsageError(
                    f"{path} has zeros in it, as if a download broke off: get it again"
                )
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
            f"({type(error).__name__}: {cause}). Shards (.bin) need none. For a text name a folder "
            "of yours in TIKTOKEN_CACHE_DIR, and connect once, or copy two files from another "
            f"machine's cache into it: {' and '.join(VOCABULARY_FILES)}"
        ) from error


def cache_folder() -> str:
    """Where tiktoken looks for GPT-2's vocabulary; empty if the user wants no cache."""
    usual = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    return os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", usual))
