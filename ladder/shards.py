"""Token shards: the `.bin` layout of llm.c and modded-nanogpt.

A shard is a header of 256 little-endian int32 (magic 20240520, version 1, token count, zeros),
then the tokens as uint16.
"""

from pathlib import Path

import numpy as np

from ladder.errors import BadInput

MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
MOST_TOKENS = 2**31 - 1  # per shard: its header stores the count as int32


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write `tokens` (uint16, 1-D, at most MOST_TOKENS) as one shard."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    path.write_bytes(header.tobytes() + tokens.astype("<u2", copy=False).tobytes())


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
