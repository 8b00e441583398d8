"""Token shards: the `.bin` layout of llm.c and modded-nanogpt.

A shard is a header of 256 little-endian int32 (magic 20240520, version 1, token count, zeros),
then the tokens as uint16. Our headers end with the tokens' SHA-256.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.files import regular, write_whole

MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
MOST_TOKENS = 2**31 - 1  # per shard: its header stores the count as int32


class Shard:
    """The tokens of one shard on disk: `shard[a:b]` reads them, uint16, shape (b - a,).

    Not a memory map: reading a map kills the process if another program has truncated the file.
    """

    def __init__(self, path: Path, count: int):
        self.path, self.count = path, count
        self.file = path.open("rb")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> np.ndarray:
        """Read tokens. Raises BadInput if they are gone: the file was truncated, say."""
        start, stop, _ = part.indices(self.count)
        try:
            self.file.seek(HEADER_BYTES + 2 * start)
            found = self.file.read(2 * (stop - start))
        except OSError as error:  # a network's file system that is gone
            raise BadInput(f"cannot read {self.path}: {error.strerror}") from error
        if len(found) < 2 * (stop - start):
            raise BadInput(f"{self.path} was cut while it was in use: make it anew")
        return np.frombuffer(found, dtype="<u2")


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write `tokens` (uint16, 1-D) as one shard, atomically. Raises BadInput if too many."""
    if len(tokens) > MOST_TOKENS:
        raise BadInput(f"{path}: {len(tokens)} tokens, but a shard has at most {MOST_TOKENS}")
    header, tokens = np.zeros(256, dtype="<i4"), tokens.astype("<u2", copy=False).tobytes()
    header[:3] = MAGIC, VERSION, len(tokens) // 2
    header[-8:] = np.frombuffer(hashlib.sha256(tokens).digest(), dtype="<i4")
    write_whole(path, header.tobytes(), tokens)


def may_open(count: int) -> None:
    """Raise this process's limit on open files, often 1024, for `count` shards, which stay open."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(soft, min(count + 1024, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def open_shard(path: Path) -> Shard:
    """Open a shard. Raises OSError, or BadInput that names it, what was expected and what found."""
    size = regular(path).stat().st_size
    header = np.fromfile(path, dtype="<i4", count=256)
    shard = Shard(path, (size - HEADER_BYTES) // 2)
    if size == 0:
        raise BadInput(f"{path} is empty: expected {HEADER_BYTES} header bytes and tokens")
    if size < HEADER_BYTES:
        raise BadInput(f"{path} is not a shard: expected {HEADER_BYTES} header bytes, found {size}")
    if header[0] != MAGIC:
        raise BadInput(f"{path} is not a shard: expected magic number {MAGIC}, found {header[0]}")
    if header[1] != VERSION:
        found = f"{path} is a token shard of version {header[1]}"
        raise BadInput(f"{found}: expected {VERSION}, GPT-2 tokens as uint16")
    if size != HEADER_BYTES + 2 * int(header[2]):
        found = f"{size - HEADER_BYTES} bytes were found, two a token"
        raise BadInput(f"{path} is damaged: its header says {header[2]} tokens, but {found}")
    if len(shard) == 0:
        raise BadInput(f"{path} holds no tokens: expected at least one")
    return shard


def open_own_shard(path: Path) -> Shard:
    """Open a shard that `write_shard` wrote. Also raises BadInput if its SHA-256 is wrong."""
    shard, header = open_shard(path), np.fromfile(path, dtype="<i4", count=256)
    if hashlib.sha256(shard[:]).digest() != header[-8:].tobytes():
        raise BadInput(f"{path} is damaged: its SHA-256 is wrong")
    return shard
