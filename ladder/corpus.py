"""Corpora: a text, a folder of texts or token shards as one stream of token ids.

The default corpus, tinyshakespeare, ships as a shard. A text is tokenized in memory at each start.
A shard has the `.bin` layout of llm.c and modded-nanogpt: a header of 256 little-endian int32
(magic 20240520, version 1, token count, zeros), then the tokens as uint16.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.files import ROOT

# Of the text whose tokens are in data/tinyshakespeare.bin.
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
GPT2_VOCAB_SIZE = 50257
END_OF_TEXT = 50256
MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
VALIDATION = {"val", "valid", "validation"}  # words in the names of held-out shards
# encoder.json and vocab.bpe as tiktoken caches them, under the SHA-1 of their URLs.
VOCABULARY_FILES = (
    "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
    "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
)
BETWEEN_NOTES = 20_000_000  # characters, three seconds of tokenizing


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
        index = int(np.searchsorted(self.ends, start, side="right"))
        parts = []
        while count > 0:
            shard = self.shards[index]
            first = start - int(self.ends[index]) + len(shard)
            part = shard[first : first + count]
            parts.append(part)
            start += len(part)
            count -= len(part)
            index += 1
        return np.concatenate(parts)


def read_shard(path: Path) -> np.ndarray:
    """The tokens of a shard as a memory map: uint16, 1-D. Raises BadInput, OSError."""
    header = np.fromfile(path, dtype="<i4", count=256)
    if len(header) < 256 or header[0] != MAGIC or header[1] != VERSION:
        why = "it does not begin with llm.c's header (nanoGPT's train.bin has none)"
        raise BadInput(f"{path} is not a shard: {why}; make one of its text with data/prepare.py")
    count = int(header[2])
    size = path.stat().st_size - HEADER_BYTES
    if size != 2 * count or not count:
        raise BadInput(f"{path} is damaged: its header says {count} tokens, it has {size / 2:g}")
    return np.asarray(np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES))


def load_corpus(path: str | None, say) -> Corpus:
    """The corpus at `path` (text file, folder of texts, shard, folder of shards), or the default.

    `say` is called with a line for what a user may not expect. Raises BadInput.
    """
    try:
        if not path:
            shard = read_shard(ROOT / "data" / "tinyshakespeare.bin")
            return Corpus("tinyshakespeare", TINYSHAKESPEARE_SHA256, [shard])
        where = Path(path)
        if where.is_dir():
            return _load_folder(where, say)
        if where.suffix == ".bin":
            return _shard_corpus(where.stem, [where])
        return _text_corpus(where.stem, [where], say)
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or path}: {error.strerror}") from error


def _load_folder(folder: Path, say) -> Corpus:
    """The corpus of a folder: its shards that are not held out, else its texts."""
    name = folder.resolve().name
    shards = sorted(folder.glob("*.bin"))
    if not shards:
        return _text_corpus(name, _texts(folder, say), say)
    held_out = val_shards(folder)
    if held_out:
        say(f"note  {name} has {len(held_out)} of its {len(shards)} shards held out (val)")
    return _shard_corpus(name, [shard for shard in shards if shard not in held_out])


def load_splits(path: str | None, say) -> tuple[Corpus, Corpus]:
    """The corpus to train on, and held-out text: its val shards, else its last 10 %."""
    corpus = load_corpus(path, say)
    held_out = val_shards(Path(path)) if path else []
    if held_out:
        return corpus, _shard_corpus(corpus.name, held_out)
    cut = len(corpus) - len(corpus) // 10
    before = []
    after = []
    for shard, end in zip(corpus.shards, corpus.ends, strict=True):
        here = max(0, cut - int(end) + len(shard))  # where the cut is in this shard
        before.append(shard[:here])
        after.append(shard[here:])
    name = f"{corpus.name}'s last 10 %"
    return replace(corpus, shards=before), replace(corpus, name=name, shards=after)


def val_shards(folder: Path) -> list[Path]:
    """The held-out shards of a folder, sorted, such as fineweb_val_000000.bin.

    Not those with the word `train`: the corpus may be called my-val.
    """
    held_out = []
    for shard in sorted(folder.glob("*.bin")):
        words = re.split("[-_.]", shard.stem.lower())
        if VALIDATION.intersection(words) and "train" not in words:
            held_out.append(shard)
    return held_out


def _shard_corpus(name: str, files: list[Path]) -> Corpus:
    """A corpus of token shards. Its hash covers the size and the first 512 KiB of each."""
    if not files:
        raise BadInput(f"{name} holds only val shards: training needs at least one other")
    digest = hashlib.sha256()
    shards = [read_shard(file) for file in files]
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes())
    return Corpus(name, digest.hexdigest(), shards)


def _texts(folder: Path, say) -> list[Path]:
    """The texts in a folder and below it, sorted."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    texts = [file for file in files if file.suffix.lower() in (".txt", ".md")]
    if not texts:
        raise BadInput(f"{folder} holds neither .bin shards nor .txt or .md files")
    if len(texts) < len(files):
        say(f"note  {len(texts)} of {len(files)} files are read: those named .txt or .md")
    return sorted(texts)


def _text_corpus(name: str, files: list[Path], say) -> Corpus:
    """A corpus of texts (UTF-8) in this order, with <|endoftext|> between them."""
    encode = gpt2_vocabulary().encode_ordinary
    digest = hashlib.sha256()
    tokens = []
    done = 0  # characters
    said = 0  # how many were done when the last note was printed
    for file in files:
        document = file.read_bytes()
        digest.update(document)
        try:
            text = document.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{file} is not UTF-8 text (byte {error.start}): convert it") from error
        for piece in pieces(text):
            tokens.append(np.array(encode(piece), dtype=np.uint16))
            done += len(piece)
            if done >= said + BETWEEN_NOTES:
                say(f"note  tokenized {done / 1e6:.0f} MB of {name} (data/prepare.py does it once)")
                said = done
        tokens.append(np.array([END_OF_TEXT], dtype=np.uint16))
    return Corpus(name, digest.hexdigest(), [np.concatenate(tokens[:-1])])


def pieces(text: str, size: int = 2**20) -> Iterator[str]:
    """Cut `text` into pieces of about `size` characters whose tokens are those of the whole text.

    The token list of a whole gigabyte would not fit into memory. No word of GPT-2's contains a
    non-space followed by a newline, so the text is cut only there.
    """
    boundary = re.compile(r"(?<=\S)\n")
    start = 0
    while end := boundary.search(text, start + size):
        yield text[start : end.start()]
        start = end.start()
    yield text[start:]


def cached_vocabulary() -> list[Path]:
    """encoder.json and vocab.bpe in tiktoken's cache; empty if they are not there."""
    paths = [cache_folder() / name for name in VOCABULARY_FILES]
    return paths if all(path.exists() for path in paths) else []


def cache_folder() -> Path:
    """Where tiktoken looks for GPT-2's vocabulary."""
    return Path(os.environ.get("TIKTOKEN_CACHE_DIR") or f"{tempfile.gettempdir()}/data-gym-cache")


def gpt2_vocabulary():
    """tiktoken's GPT-2 encoding. Raises BadInput if neither its cache nor the network has it."""
    import tiktoken

    try:
        return tiktoken.get_encoding("gpt2")
    except (OSError, ValueError) as error:  # no network, or what came was not the vocabulary
        raise BadInput(
            f"no GPT-2 vocabulary on the network or in {cache_folder()}: connect once, or copy "
            f"{' and '.join(VOCABULARY_FILES)} from that folder of another machine (or name a "
            "folder that has both in TIKTOKEN_CACHE_DIR)"
        ) from error
