"""Corpora: a text, a folder of texts or token shards as one stream of token ids.

A folder is read with all below it: its shards, or where it has none its texts. It may hold what
people and their systems leave there: names that begin with a dot are not read, and files for
validation or tests are not trained on.

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

from ladder.errors import UsageError
from ladder.files import ROOT

# Of the text whose tokens are in data/tinyshakespeare.bin.
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
GPT2_VOCAB_SIZE = 50257
END_OF_TEXT = 50256
MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
MARK = "<|endoftext|>"  # as datasets write END_OF_TEXT between documents
# Words in the names of files, and what such a file is for.
SPLITS = {"train": "train", "test": "test"}
SPLITS |= dict.fromkeys(("val", "valid", "validation", "dev", "eval"), "val")
UNFINISHED = ".unfinished"  # in a folder of shards that data/prepare.py is still writing
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


def is_shard(path: Path) -> bool:
    """Whether a file says of itself that it is a shard. Other programs' .bin files do not."""
    return np.fromfile(path, dtype="<i4", count=2).tolist() == [MAGIC, VERSION]


def read_shard(path: Path) -> np.ndarray:
    """The tokens of a shard as a memory map: uint16, 1-D. Raises UsageError, OSError."""
    header = np.fromfile(path, dtype="<i4", count=256)
    if not is_shard(path):
        why = "it does not begin with llm.c's header (nanoGPT's train.bin has none)"
        how = "make shards of its text with data/prepare.py"
        raise UsageError(f"{path} is not a shard of GPT-2's tokens: {why}; {how}")
    count = int(header[2])
    size = path.stat().st_size - HEADER_BYTES
    if size != 2 * count or not count:
        raise UsageError(f"{path} is damaged: its header says {count} tokens, it has {size / 2:g}")
    return np.asarray(np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES))


def load_corpus(path: str | None, print0) -> Corpus:
    """The corpus at `path` (text file, folder of texts, shard, folder of shards), or the default.

    Of a folder that is what to train on. `print0` is called with a line for what a user may not
    expect. Raises UsageError.
    """
    corpus, _ = load_files(path, print0, with_val=False)
    return corpus


def load_splits(path: str | None, print0) -> tuple[Corpus, Corpus]:
    """The corpus to train on, and held-out text: its val files, else its last 10 %."""
    corpus, held_out = load_files(path, print0)
    if held_out:
        return corpus, held_out
    cut = len(corpus) - len(corpus) // 10
    before = []
    after = []
    for shard, end in zip(corpus.shards, corpus.ends, strict=True):
        here = max(0, cut - int(end) + len(shard))  # where the cut is in this shard
        before.append(shard[:here])
        after.append(shard[here:])
    name = f"{corpus.name}'s last 10 %"
    return replace(corpus, shards=before), replace(corpus, name=name, shards=after)


def load_files(path: str | None, print0, with_val: bool = True) -> tuple[Corpus, Corpus | None]:
    """The corpus at `path`, and its val files or None: as load_corpus, which does not read them."""
    try:
        if not path:
            shard = read_shard(ROOT / "data" / "tinyshakespeare.bin")
            return Corpus("tinyshakespeare", TINYSHAKESPEARE_SHA256, [shard]), None
        where = Path(path)
        name = where.stem
        train = [where]
        val = []
        if where.is_dir():
            name = where.resolve().name
            train, val = _split(where, print0)
        corpus = _read(name, train, print0)
        if not len(corpus):
            raise UsageError(f"{path} has no text to train on: 0 tokens")
        if not (val and with_val):
            return corpus, None
        held_out = _read(name, val, print0)
        if not len(held_out):
            rest = "the last 10 % of the others are held out"
            print0(f"note  no tokens in {_some(val, where)}: {rest}")
            return corpus, None
        return corpus, held_out
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror}") from error


def _split(folder: Path, print0) -> tuple[list[Path], list[Path]]:
    """The files of a folder to train and to validate on: its shards, else its texts.

    Says what is left out.
    """
    found = _files_below(folder)
    binary = _of_kind(found, ".bin")
    files = [path for path in binary if is_shard(path)]
    what = "shards"
    if not files:
        files = _of_kind(found, ".txt", ".md")
        what = "texts (.txt, .md)"
    if not files:
        for path in binary[:1]:
            read_shard(path)  # raises what it lacks
        raise UsageError(f"{folder} holds neither .bin shards nor .txt or .md files")
    left_out = sorted(set(found) - set(files))
    if left_out:
        print0(f"note  only {what} are read, not {_some(left_out, folder)}")
    splits = {"train": [], "val": [], "test": []}
    for file in files:
        splits[split_of(file.relative_to(folder))].append(file)
    for split in ("val", "test"):
        held_out = splits[split]
        if held_out:
            of = f"{len(held_out)} of {len(files)} files held out ({split})"
            print0(f"note  {folder.resolve().name} has {of}: {_some(held_out, folder)}")
    if not splits["train"]:
        raise UsageError(f"{folder} holds only files for val or test: name one to train on it")
    return splits["train"], splits["val"]


def _of_kind(paths: list[Path], *suffixes: str) -> list[Path]:
    """Those of these paths that are files with one of these suffixes."""
    return [path for path in paths if path.suffix.lower() in suffixes and path.is_file()]


def split_of(name: Path) -> str:
    """train, val or test: the last of these words in a name; train if it has none.

    data/prepare.py writes the word behind the text's own name, which may have another one.
    """
    for word in reversed(re.findall(r"[^\W\d_]+", str(name).lower())):
        if word in SPLITS:
            return SPLITS[word]
    return "train"


def _some(paths: list[Path], folder: Path) -> str:
    """The first names, and how many more there are."""
    names = [path.relative_to(folder).as_posix() for path in paths[:5]]
    if len(paths) > 5:
        names.append(f"{len(paths) - 5} more")
    return ", ".join(names)


def _files_below(folder: Path) -> list[Path]:
    """The files in a folder and in those inside it, without hidden ones.

    A link to a folder counts as a file: it is not read, and `_split` says so.
    """
    files = []
    for path in sorted(folder.rglob("*")):
        if path.name == UNFINISHED:
            half = f"{path.parent} is not all there"
            raise UsageError(f"{half}: data/prepare.py is at work, or was stopped")
        hidden = re.search(r"(^|/)\.", path.relative_to(folder).as_posix())
        if not hidden and (path.is_symlink() or not path.is_dir()):
            files.append(path)
    return files


def _read(name: str, files: list[Path], print0) -> Corpus:
    """A corpus of these shards or texts."""
    if files[0].suffix.lower() == ".bin":
        return _shard_corpus(name, files)
    return _text_corpus(name, files, print0)


def _shard_corpus(name: str, files: list[Path]) -> Corpus:
    """A corpus of token shards. Its hash covers the size and the first 512 KiB of each."""
    digest = hashlib.sha256()
    shards = [read_shard(file) for file in files]
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes())
    return Corpus(name, digest.hexdigest(), shards)


def _text_corpus(name: str, files: list[Path], print0) -> Corpus:
    """A corpus of texts (UTF-8) in this order, with <|endoftext|> between them."""
    vocabulary = gpt2_vocabulary()
    digest = hashlib.sha256()
    tokens = []
    done = 0  # characters
    said = 0  # how many were done when the last note was printed
    for file in files:
        document = file.read_bytes()
        digest.update(document)
        try:
            text = document.decode()
            end = text.find("\0")  # as in UTF-16
        except UnicodeDecodeError as error:
            end = error.start
        if end >= 0:
            raise UsageError(f"{file} is not UTF-8 text (byte {end}): unpack or convert it")
        for piece in pieces(text):
            ids = vocabulary.encode(piece, allowed_special={MARK})
            tokens.append(np.array(ids, dtype=np.uint16))
            done += len(piece)
            if done >= said + BETWEEN_NOTES:
                print0(
                    f"note  tokenized {done / 1e6:.0f} MB of {name} (data/prepare.py does it once)"
                )
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
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if name in os.environ:
            return Path(os.environ[name])
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def gpt2_vocabulary():
    """tiktoken's GPT-2 encoding. Raises UsageError if neither its cache nor the network has it."""
    import tiktoken

    try:
        return tiktoken.get_encoding("gpt2")
    except (OSError, ValueError) as error:  # no network, or what came was not the vocabulary
        raise UsageError(
            f"no GPT-2 vocabulary on the network or in {cache_folder()}: connect once, or copy "
            f"{' and '.join(VOCABULARY_FILES)} from that folder of another machine (or name a "
            "folder that has both in TIKTOKEN_CACHE_DIR)"
        ) from error
