"""Corpora: a text, a folder of texts or token shards as one stream of token ids.

The default corpus, tinyshakespeare, ships as a shard. A text is tokenized in memory at each start.
A shard has the `.bin` layout of llm.c and modded-nanogpt: a header of 256 little-endian int32
(magic 20240520, version 1, token count, zeros), then the tokens as uint16.
"""

import hashlib
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.files import ROOT

# Of the text that data/tinyshakespeare.bin has the tokens of.
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
GPT2_VOCAB_SIZE = 50257
END_OF_TEXT = 50256
MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
SILENCE_S = 3  # between two lines while a text is tokenized or its vocabulary is fetched
SURPRISES = {  # what may be in a text without its owner's knowledge, and what becomes of it
    b"\r\n": "CRLF line ends, which are tokens of their own (dos2unix removes them)",
    "\ufeff".encode(): "a byte-order mark, which is a token too",
    b"<|endoftext|>": "<|endoftext|>, which is read as text and not as the end of one",
}


@dataclass
class Corpus:
    """A token stream over one or more shards, and the name and hash that logs carry."""

    name: str
    sha256: str
    shards: list[np.ndarray]  # each uint16, 1-D

    def __post_init__(self):
        self.ends = np.cumsum([len(shard) for shard in self.shards])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens start … start+count-1 of the whole stream, across shard ends: uint16, (count,)."""
        index, parts = int(np.searchsorted(self.ends, start, side="right")), []
        while count > 0:
            offset = start - int(self.ends[index])  # from the shard's end: below zero
            parts.append(self.shards[index][offset:][:count])
            start, count, index = start + len(parts[-1]), count - len(parts[-1]), index + 1
        return np.concatenate(parts)

    def part(self, start: int, stop: int) -> "Corpus":
        """Tokens start … stop-1 as a Corpus that keeps the name and hash of the whole."""
        pairs = zip(self.shards, self.ends - [len(shard) for shard in self.shards], strict=True)
        cut = [shard[max(start - first, 0) : max(stop - first, 0)] for shard, first in pairs]
        return replace(self, shards=cut)


def read_shard(path: Path) -> np.ndarray:
    """The tokens of a shard as a memory map: uint16, 1-D. Raises BadInput, OSError."""
    header = np.fromfile(path, dtype="<i4", count=256)
    size = path.stat().st_size - HEADER_BYTES
    if len(header) < 256:
        raise BadInput(f"{path} is not a shard: it is shorter than a header of 1024 bytes")
    magic, version, count = map(int, header[:3])
    if (magic, version) != (MAGIC, VERSION):
        found = f"is not a shard: expected {MAGIC}, version {VERSION}, found {magic}, {version}"
        if header.view("<u2").max() <= 50256:
            found = "has no header: bare tokens, as nanoGPT's train.bin"
        raise BadInput(f"{path} {found}; make shards of its text with data/prepare.py")
    if size != 2 * count or not count:
        raise BadInput(f"{path} is damaged: its header says {count} tokens, it has {size / 2:g}")
    return np.asarray(np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES))


def load_corpus(path: str | None, say: Callable[[str], None]) -> Corpus:
    """The corpus at `path` (text file, folder of texts, shard, folder of shards), or the default.

    `say` is called with a line for what a user may not expect. Raises BadInput.
    """
    try:
        if path is None:
            shard = read_shard(ROOT / "data" / "tinyshakespeare.bin")
            return Corpus("tinyshakespeare", TINYSHAKESPEARE_SHA256, [shard])
        if not (where := Path(path)).is_dir():
            make = _shard_corpus if where.suffix == ".bin" else _text_corpus
            return make(where.stem, [where], say)
        name, held_out = where.resolve().name, val_shards(where)
        if not (shards := sorted(where.glob("*.bin"))):
            return _text_corpus(name, _texts(where, say), say)
        if held_out:
            say(f"note  {name} has {len(held_out)} of its {len(shards)} shards held out (val)")
        return _shard_corpus(name, [shard for shard in shards if shard not in held_out])
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or path}: {error.strerror}") from error


def load_splits(path: str | None, say: Callable[[str], None]) -> tuple[Corpus, Corpus]:
    """The corpus to train on, and held-out text: its val shards, else its last 10 %."""
    corpus = load_corpus(path, say)
    if path and Path(path).is_dir() and (held_out := val_shards(Path(path))):
        return corpus, _shard_corpus(Path(path).resolve().name, held_out)
    cut = len(corpus) - len(corpus) // 10
    held_out = corpus.part(cut, len(corpus))
    held_out.name += "'s last 10 %"
    return corpus.part(0, cut), held_out


def val_shards(folder: Path) -> list[Path]:
    """The held-out shards of a folder: of train and val (or alike), their names have val last."""
    split = re.compile("(?:^|[-_.])(?:train|(val|valid|validation))(?=[-_.]|$)", re.IGNORECASE)
    return [s for s in sorted(folder.glob("*.bin")) if any(split.findall(s.stem)[-1:])]


def _shard_corpus(name: str, files: list[Path], *_) -> Corpus:
    """A corpus of token shards. Its hash covers the size and both ends (512 KiB) of each."""
    if not files:
        raise BadInput(f"{name} holds only val shards: training needs at least one other")
    digest, shards = hashlib.sha256(), [read_shard(file) for file in files]
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes() + shard[-(2**18) :].tobytes())
    return Corpus(name, digest.hexdigest(), shards)


def _texts(folder: Path, say) -> list[Path]:
    """The texts in a folder and below it, sorted."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    texts = sorted(file for file in files if file.suffix.lower() in (".txt", ".md"))
    if not texts:
        raise BadInput(f"{folder} holds neither .bin shards nor .txt or .md files")
    rest = Counter(file.suffix or "other" for file in {*files} - {*texts})
    if left_out := ", ".join(f"{count} {suffix}" for suffix, count in rest.most_common(5)):
        say(f"note  only .txt and .md files are read; left out: {left_out}")
    return texts


def _text_corpus(name: str, files: list[Path], say) -> Corpus:
    """A corpus of texts (UTF-8) in this order, with <|endoftext|> between them."""
    documents, tokens = [file.read_bytes() for file in files], []
    size, done, last = sum(map(len, documents)) / 1e6, 0, time.monotonic()  # MB, MB, seconds
    if not size:
        raise BadInput(f"corpus {name} is empty: expected text")
    for mark, what in SURPRISES.items():
        if count := sum(mark in document for document in documents):
            say(f"note  in {count} of {len(documents)} texts of {name}: {what}")
    encode = gpt2_vocabulary().encode_ordinary
    for file, document in zip(files, documents, strict=True):
        try:
            text = document.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{file} is not UTF-8 text (byte {error.start}): convert it") from error
        for piece in pieces(text):
            tokens.append(np.array(encode(piece), dtype=np.uint16))
            done += len(piece.encode()) / 1e6
            if time.monotonic() - last > SILENCE_S:
                what = f"{done:.0f} of {size:.0f} MB (data/prepare.py does it once)"
                say(f"note  tokenizing {name}: {what}")
                last = time.monotonic()
        tokens.append(np.array([END_OF_TEXT], dtype=np.uint16))
    # Several texts: the hash of their hashes, because joined they could equal another text.
    hashes = [hashlib.sha256(document).digest() for document in documents]
    digest = hashes[0] if len(hashes) == 1 else hashlib.sha256(b"".join(hashes)).digest()
    return Corpus(name, digest.hex(), [np.concatenate(tokens[:-1])])


def pieces(text: str, size: int = 2**20) -> Iterator[str]:
    """Cut `text` into pieces of about `size` characters whose tokens are those of the whole text.

    The token list of a whole gigabyte would not fit into memory. No word of GPT-2's contains a
    non-space followed by a newline, so the text is cut only there.
    """
    start, boundary = 0, re.compile(r"(?<=\S)\n")
    while found := boundary.search(text, start + size):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def gpt2_vocabulary():
    """tiktoken's GPT-2 encoding. Raises BadInput if neither its cache nor the network has it."""
    import tiktoken

    said = "note  waiting for tiktoken to download GPT-2's vocabulary (once)"
    waiting = threading.Timer(SILENCE_S, print, [said], {"file": sys.stderr})
    waiting.start()
    try:
        return tiktoken.get_encoding("gpt2")
    except (OSError, ValueError) as error:  # no network, or what came was not the vocabulary
        said = "no GPT-2 vocabulary in tiktoken's cache or on the network: connect once, or name a"
        raise BadInput(f"{said} folder that has it in TIKTOKEN_CACHE_DIR") from error
    finally:
        waiting.cancel()
