"""Token shards: the `.bin` layout of llm.c and modded-nanogpt.

A shard is a header of 256 little-endian int32 (magic 20240520, version 1, token count, zeros),
then the tokens as uint16.
"""

from pathlib import Path

import numpy as np

from ladder.errors import BadInput
from ladder.files import write_whole

MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write `tokens` (uint16, 1-D) as one shard; the name appears only when the file is whole."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    write_whole(path, header.tobytes(), tokens.astype("<u2", copy=False).tobytes())


def open_shard(path: Path) -> np.ndarray:
    """The tokens of one shard, memory-mapped: uint16, shape (token count,).

    Raises BadInput, naming the file, what was expected and what was found.
    """
    try:
        size = path.stat().st_size
        header = np.fromfile(path, dtype="<i4", count=256)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    if size == 0:
        raise BadInput(f"{path} is empty: expected {HEADER_BYTES} header bytes and tokens")
    if size < HEADER_BYTES:
        raise BadInput(f"{path} is no shard: expected {HEADER_BYTES} header bytes, found {size}")
    if header[0] != MAGIC:
        raise BadInput(f"{path} is no shard: expected magic number {MAGIC}, found {header[0]}")
    if header[1] != VERSION:
        raise BadInput(
            f"{path} is a token shard of version {header[1]}: expected {VERSION}, GPT-2 tokens "
            "as uint16"
        )
    expected, found = int(header[2]), (size - HEADER_BYTES) // 2
    if size != HEADER_BYTES + 2 * expected:
        raise BadInput(
            f"{path} is damaged: by its header it has {expected} tokens, but {found} were found"
        )
    if expected == 0:
        raise BadInput(f"{path} holds no tokens: expected at least one")
    return np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES, shape=(expected,))
