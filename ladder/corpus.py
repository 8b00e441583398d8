"""Corpora: a text, a folder of texts or token shards as one stream of token ids.

The default corpus is tinyshakespeare, downloaded once. Without a network it is the documentation
that ships with Python; without the GPT-2 vocabulary a text is read as bytes. Both print a note.
"""

import hashlib
import http.client
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.files import DATA_DIR, regular, write_whole
from ladder.shards import Shard, may_open, open_own_shard, open_shard, write_shard

TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
NETWORK_TIMEOUT_S = 5  # until the first answer, and between two
VOCABULARY_TIMEOUT_S = 60  # for all of a download, 1 to 1.5 MB
GPT2_VOCAB_SIZE = 50257
END_OF_TEXT = 50256
TEXT_SUFFIXES = {".txt", ".md"}


@dataclass
class Corpus:
    """A token stream over one or more shards, and the name and hash that logs carry."""

    name: str
    sha256: str
    shards: list[np.ndarray | Shard]  # each uint16, 1-D
    tokenizer: str = "gpt2"  # or "bytes", without the vocabulary
    first: int = 0  # where in the shards the stream begins ...
    end: int | None = None  # ... and ends

    def __post_init__(self):
        self.ends = np.cumsum([len(shard) for shard in self.shards])
        if self.end is None:
            self.end = int(self.ends[-1])

    def __len__(self) -> int:
        return self.end - self.first

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens start … start+count-1 of the whole stream, across shard ends: uint16, (count,)."""
        parts, start = [], self.first + start
        index = int(np.searchsorted(self.ends, start, side="right"))
        while count > 0:
            shard = self.shards[index]
            offset = start - (int(self.ends[index]) - len(shard))
            part = shard[offset : offset + count]
            parts.append(part)
            start, count, index = start + len(part), count - len(part), index + 1
        return np.concatenate(parts)

    def part(self, start: int, stop: int) -> "Corpus":
        """Tokens start … stop-1 as a Corpus that keeps the name and hash of the whole."""
        return replace(self, first=self.first + start, end=self.first + stop)

    @property
    def identity(self) -> str:
        """Identifies the tokens: the tokenizer and the hash of the text."""
        return f"{self.tokenizer} {self.sha256}"

    @property
    def known_tokens(self) -> int:
        """Number of ids that decode to text."""
        return GPT2_VOCAB_SIZE if self.tokenizer == "gpt2" else 256

    def decode(self, ids: list[int]) -> str:
        """Decode token ids; without a vocabulary, return a note with the ids."""
        if self.tokenizer == "bytes":
            return bytes(ids).decode(errors="replace")
        vocabulary = gpt2_vocabulary(timeout_s=NETWORK_TIMEOUT_S)
        return vocabulary.decode(ids) if vocabulary else f"(no GPT-2 vocabulary; token ids {ids})"


def load_corpus(path: str | None, say: Callable[[str], None]) -> Corpus:
    """The corpus at `path` (text file, folder of texts, shard, folder of shards), or the default.

    `say` is called with a line for every download and fallback. Raises BadInput.
    """
    try:
        return _default_corpus(say) if path is None else _corpus_at(Path(path), say)
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or path}: {error.strerror}") from error
    except MemoryError:
        to_do = "cut it, and make shards of each part with data/prepare.py"
        raise BadInput(f"{path} does not fit into memory: {to_do}") from None


def load_splits(path: str | None, say: Callable[[str], None]) -> tuple[Corpus, Corpus]:
    """The corpus to train on, and held-out text: its val shards, else its last 10 %.

    Raises BadInput.
    """
    corpus = load_corpus(path, say)
    if path and Path(path).is_dir() and (held_out := val_shards(Path(path))):
        return corpus, _shard_corpus(Path(path), held_out)
    cut = len(corpus) - len(corpus) // 10
    held_out = corpus.part(cut, len(corpus))
    held_out.name += "'s last 10 %"
    return corpus.part(0, cut), held_out


def val_shards(folder: Path) -> list[Path]:
    """The held-out shards of a folder: of train and val (or alike), their names have val last."""
    split = re.compile("(?:^|[-_.])(?:train|(val|valid|validation))(?=[-_.]|$)", re.IGNORECASE)
    return [s for s in sorted(folder.glob("*.bin")) if any(split.findall(s.stem)[-1:])]


def _corpus_at(path: Path, say) -> Corpus:
    if not path.exists():
        raise BadInput(f"no such file or folder: {path}")
    if not path.is_dir():
        return _shard_corpus(path, [path]) if path.suffix == ".bin" else _text_corpus(path, say)
    shards = sorted(path.glob("*.bin"))
    if not shards:
        return _text_corpus(path, say)
    name = path.resolve().name
    if part := next(path.glob("unfinished-shards-*/*.bin"), None):
        why = f"{part.parent} is of a data/prepare.py that was killed"
        rest = f"the *.bin and unfinished-shards-* in {path}"
        raise BadInput(f"{why}: delete {rest}, and run it again")
    if any(file.suffix.lower() in TEXT_SUFFIXES for file in path.iterdir()):
        say(f"note  {name} holds shards: its texts are not read")
    if held_out := val_shards(path):
        say(f"note  {name} has {len(held_out)} of its {len(shards)} shards held out (val)")
    return _shard_corpus(path, [shard for shard in shards if shard not in held_out])


def _default_corpus(say) -> Corpus:
    named = os.environ.get("LADDER_DATA")
    path = Path(named or DATA_DIR) / "tinyshakespeare" / "input.txt"
    if named and not path.is_file():
        raise BadInput(f"LADDER_DATA is set, but there is no file {path}: unset or correct it")
    if path.exists():
        text = _read_text(path)
        if hashlib.sha256(text).hexdigest() != TINYSHAKESPEARE_SHA256:
            raise BadInput(f"{path} is not tinyshakespeare (wrong SHA-256): delete or replace it")
        return _tokenized("tinyshakespeare", [text], say)
    say("note  downloading tinyshakespeare (1.1 MB) into data/")
    try:
        text = download(TINYSHAKESPEARE_URL, TINYSHAKESPEARE_SHA256)
    except (OSError, ValueError, http.client.HTTPException, BadInput) as error:
        instead = "falling back to the documentation that ships with Python; do not compare these"
        where = "LADDER_DATA names a folder with tinyshakespeare/input.txt in it"
        say(f"note  no tinyshakespeare ({error}): {instead} losses with others ({where})")
        from pydoc_data.topics import topics

        text = "\n\n".join(topics[key] for key in sorted(topics)).encode()
        # Without a network tiktoken answers from its cache at once, or never.
        return _tokenized("python-docs", [text], say, NETWORK_TIMEOUT_S)
    try:
        write_whole(path, text)
    except OSError as error:
        say(f"note  could not save it ({error}): the next run downloads it again")
    return _tokenized("tinyshakespeare", [text], say)


def download(url: str, sha256: str) -> bytes:
    """Download `url`. Raises OSError or HTTPException, and BadInput if the hash is wrong."""
    # urlopen's timeout applies to each address of the host, not to the name lookup.
    limit = NETWORK_TIMEOUT_S
    response = within(2 * limit, urllib.request.urlopen, url, timeout=limit)
    # Not closed here: that would wait for a read that takes too long.
    content = within(VOCABULARY_TIMEOUT_S, response.read, 2**22)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BadInput(f"what {url} sent has the wrong SHA-256")
    return content


def within(seconds: float, function: Callable, *args, **kwargs):
    """Call function(*args, **kwargs). Raises TimeoutError if it takes longer than `seconds`."""
    future = Future()

    def call():
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()  # an executor's would be joined at exit
    try:
        return future.result(seconds)
    except FutureTimeout:
        raise TimeoutError(f"no answer in {seconds:.0f} seconds") from None


def _shard_corpus(path: Path, files: list[Path]) -> Corpus:
    """A corpus of token shards. The hash covers the size and the first and last 512 KiB of each:
    hashing many gigabytes would take minutes."""
    if not files:
        raise BadInput(f"{path} holds only val shards: training needs at least one other")
    digest = hashlib.sha256()
    may_open(len(files))
    shards = [open_shard(file) for file in files]
    for shard in shards:
        digest.update(len(shard).to_bytes(8, "little"))
        digest.update(shard[: 2**18].tobytes() + shard[-(2**18) :].tobytes())
    name = path.resolve().name if path.is_dir() else path.stem
    return Corpus(name, digest.hexdigest(), shards)


def _text_corpus(path: Path, say) -> Corpus:
    """A corpus of one text, or of a folder's texts by name, with <|endoftext|> between them."""
    if not path.is_dir():
        return _tokenized(path.stem, [_read_text(path)], say)

    def refuse(error):  # os.walk would skip a folder that cannot be read
        raise error

    files = []
    for folder, folders, names in os.walk(path, onerror=refuse):
        for link in filter(os.path.islink, (os.path.join(folder, name) for name in folders)):
            say(f"note  {link} is a link: its texts are not read")  # it may lead back here
        files += [Path(folder, name) for name in names]
    files = sorted(file for file in files if file.suffix.lower() in TEXT_SUFFIXES)
    if not files:
        raise BadInput(f"{path} holds neither .bin shards nor .txt or .md files")
    return _tokenized(path.resolve().name, [_read_text(file) for file in files], say)


def _read_text(path: Path) -> bytes:
    text = regular(path).read_bytes()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise BadInput(f"{path} is not UTF-8 text ({where}): convert it first") from error
    return text


def _tokenized(name: str, documents: list[bytes], say, timeout_s=VOCABULARY_TIMEOUT_S) -> Corpus:
    """Tokenize `documents` (UTF-8) into one shard and cache it in data/shards.

    If the GPT-2 vocabulary does not arrive within `timeout_s`, every byte is a token.
    """
    if not any(documents):
        raise BadInput(f"corpus {name} is empty: expected text")
    name = name[:50]  # a part of file names, which have at most 255 bytes
    # Several texts: the hash of their hashes, because joined they could equal another text.
    hashes = [hashlib.sha256(document) for document in documents]
    joined = hashlib.sha256(b"".join(part.digest() for part in hashes))
    sha256 = (hashes[0] if len(hashes) == 1 else joined).hexdigest()
    cache = DATA_DIR / "shards" / f"{name}-{sha256[:32]}.bin"  # of 12 digits two texts were found
    if cache.exists():
        try:
            return Corpus(name, sha256, [open_own_shard(cache)])
        except (OSError, BadInput) as error:
            say(f"note  {error}: it is written anew")
    say(f"note  tokenizing {name} ({sum(map(len, documents))} bytes)")
    encode = gpt2_encoder(timeout_s)
    if encode is None:
        why = "no GPT-2 vocabulary (no network, and none in TIKTOKEN_CACHE_DIR)"
        say(f"note  {why}: one token per byte; do not compare these losses with others")
        tokens = encode_documents(documents, lambda text: list(text.encode()))
        return Corpus(f"{name}-bytes", sha256, [tokens], tokenizer="bytes")
    try:
        tokens = encode_documents(documents, encode)
    except BaseException as error:  # tiktoken's is no Exception
        if type(error).__name__ != "PanicException":
            raise
        why = f"{name} has hundreds of thousands of blanks in a row"
        raise BadInput(f"tiktoken cannot split it: {why}: take them out") from None
    try:
        write_shard(cache, tokens)
    except (OSError, BadInput) as error:
        say(f"note  could not save the tokens ({error}): the next run tokenizes again")
    return Corpus(name, sha256, [tokens])


def encode_documents(documents: list[bytes], encode: Callable[[str], list[int]]) -> np.ndarray:
    """All documents as uint16 tokens, with <|endoftext|> between documents."""
    tokens = []
    for number, document in enumerate(documents):
        if number:
            tokens.append(np.array([END_OF_TEXT], dtype=np.uint16))
        for piece in pieces(document.decode()):
            tokens.append(np.array(encode(piece), dtype=np.uint16))
    return np.concatenate(tokens)


def pieces(text: str, size: int = 2**22) -> Iterator[str]:
    """Cut `text` into pieces of about `size` characters whose tokens are those of the whole text.

    GPT-2 splits a text into words before it merges bytes, and no word contains a non-space followed
    by a newline, so the text is cut only there. The token list of a whole gigabyte would not fit
    into memory.
    """
    start, boundary = 0, re.compile(r"(?<=\S)\n")
    while found := boundary.search(text, start + size):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def gpt2_encoder(timeout_s: float) -> Callable[[str], list[int]] | None:
    """A function from text to GPT-2 token ids, or None without the vocabulary."""
    vocabulary = gpt2_vocabulary(timeout_s)
    return vocabulary and vocabulary.encode_ordinary


def gpt2_vocabulary(timeout_s: float):
    """tiktoken's GPT-2 vocabulary from its cache or the network, or None if neither has it."""
    import tiktoken

    try:  # tiktoken sets no timeout; a network that drops packets takes minutes
        return within(timeout_s, tiktoken.get_encoding, "gpt2")
    except (OSError, ValueError):  # no network, or the download was not the vocabulary
        return None
