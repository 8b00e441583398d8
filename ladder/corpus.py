"""Corpora: one text, one token shard or a folder of shards as one stream of token ids.

The default corpus, tinyshakespeare, ships as a shard. A text is tokenized in memory at each start;
data/prepare.py makes shards of it, once. A shard has the `.bin` layout of llm.c and
modded-nanogpt: a header of 256 little-endian int32 (magic 20240520, version 1, token count,
zeros), then the tokens as uint16.
"""

import hashlib
import os
import shlex
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ladder.errors import UsageError
from ladder.files import ROOT

# Of the text whose tokens are in data/tinyshakespeare.bin.
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
GPT2_VOCAB_SIZE = 50257
END_OF_TEXT = 50256
MARK = "<|endoftext|>"  # as datasets write END_OF_TEXT between documents
MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
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


def load_corpus(path: str | None, print0) -> Corpus:
    """The corpus at `path` (a text, a shard, a folder of shards), or the default.

    `print0` is called with a line for what a user may not expect. Raises UsageError.
    """
    return _load(path, print0)[0]


def load_splits(path: str | None, print0) -> tuple[Corpus, Corpus]:
    """The corpus to train on, and held-out text: a folder's val shards, else the last 10 %."""
    corpus, held_out = _load(path, print0)
    if held_out:
        return corpus, held_out
    cut = len(corpus) - len(corpus) // 10
    end = replace(corpus, name=f"{corpus.name}'s last 10 %", first=cut)
    return replace(corpus, last=cut), end


def _load(path: str | None, print0) -> tuple[Corpus, Corpus | None]:
    """The corpus at `path`, and that of its val shards or None."""
    try:
        if path is None:
            shard = read_shard(ROOT / "data" / "tinyshakespeare.bin")
            return Corpus("tinyshakespeare", TINYSHAKESPEARE_SHA256, [shard]), None
        where = Path(path)
        if where.is_dir():
            return _read_folder(where, print0)
        if where.suffix == ".bin":
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
    words = torch.from_file(str(path), size=first + count, dtype=torch.uint16)
    return words[first:].numpy()


def _read_folder(folder: Path, print0) -> tuple[Corpus, Corpus | None]:
    """The shards of a folder, and apart from them those with `val` in their name.

    As in fineweb_val_000000.bin: no `train` stands behind it.
    """
    train = []
    val = []
    paths = sorted(folder.glob("[!.]*.bin"))
    shards = [path for path in paths if np.fromfile(path, "<i4", 1).tolist() == [MAGIC]]
    if shards != paths:
        print0(f"note  {len(shards)} of {len(paths)} .bin files are shards, others are not read")
    for path in shards:
        split = val if path.stem.rfind("val") > path.stem.rfind("train") else train
        split.append(read_shard(path))
    if not train:
        raise UsageError(
            f"{folder} has no shards (.bin): `python data/prepare.py {shlex.quote(str(folder))}` "
            "makes them of texts"
        )
    name = folder.resolve().name
    return _corpus_of(name, train), _corpus_of(name, val) if val else None


def _corpus_of(name: str, shards: list[np.ndarray]) -> Corpus:
    """A corpus of token shards. Its hash covers the size and the first 512 KiB of each."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes())
    return Corpus(name, digest.hexdigest(), shards)


# ------------------------------------------------------------------ texts


def tokenize(name: str, files: list[Path], print0) -> Corpus:
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
            why = f"{error.reason}; iconv -c leaves out what is not"
            raise UsageError(f"{path} is no text in UTF-8: {why}") from error
    if not tokens:
        raise UsageError(f"{name} has no text: 0 tokens")
    return Corpus(name, digest.hexdigest(), [np.frombuffer(tokens, dtype=np.uint16)])


def read_blocks(path: Path, digest, print0) -> Iterator[str]:
    """A text, 2**18 characters at a time. Raises OSError, UnicodeDecodeError."""
    with path.open(encoding="utf-8", newline="") as file:
        for number, block in enumerate(iter(partial(file.read, 2**18), ""), 1):
            digest.update(block.encode())
            yield block
            if number % 80 == 0:  # every three seconds
                print0(f"note  {number // 4} million characters of {path.name} are tokenized")


def encode(blocks: Iterable[str]) -> Iterator[list[int]]:
    """The tokens of a text that comes in blocks: those of the whole text.

    What follows a block may change its last words. So its last 64 tokens are held back, and their
    text is encoded again with the next block. If the first token comes out as before, the tokens
    in front of it stand: in byte pair encoding each two neighbours decide whether they go
    together, and a word that is cut goes on as a word of its kind.
    """
    vocabulary = gpt2_vocabulary()
    encode_all = partial(vocabulary.encode, allowed_special={MARK})
    held = ""  # the text of tokens[cut:]
    tokens = []
    cut = 0
    for block in blocks:
        new = encode_all(held + block)
        if tokens and new[0] != tokens[cut]:
            new = encode_all(vocabulary.decode(tokens) + block)
        else:
            yield tokens[:cut]
        tokens = new
        cut = max(0, len(tokens) - 64)
        # Not inside a character of UTF-8.
        while vocabulary.decode_single_token_bytes(tokens[cut])[0] in range(0x80, 0xC0):
            cut -= 1
        held = vocabulary.decode(tokens[cut:])
    yield tokens


# ------------------------------------------------------------------ GPT-2's vocabulary


def gpt2_vocabulary():
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
        raise UsageError(
            f"no GPT-2 vocabulary in {folder or 'a cache'}: {why}, and no network brought it; "
            "name a folder of yours in TIKTOKEN_CACHE_DIR, and connect once, or copy "
            f"{' and '.join(VOCABULARY_FILES)} into it from that of another machine"
        ) from error


def cache_folder() -> str:
    """Where tiktoken looks for GPT-2's vocabulary; empty if the user wants no cache."""
    usual = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    return os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", usual))
