"""A shard of the most frequent 4,096 tokens of a shard, numbered by frequency: the others are left out.

From the root of the repository:

    PYTHONPATH=. python frequent.py gcide/gcide_train_000000.bin gcide4096/gcide4096_train_000000.bin
"""

import sys
from pathlib import Path

import numpy as np

from data.prepare import write_shard

source, target = map(Path, sys.argv[1:])
tokens = np.fromfile(source, dtype="<u2")[512:]  # after the header
counts = np.bincount(tokens, minlength=50257)
frequent = np.argsort(-counts, kind="stable")[:4096]
number = np.full(50257, -1)
number[frequent] = np.arange(4096)
kept = number[tokens]
kept = kept[kept >= 0].astype("<u2")
target.parent.mkdir(parents=True)
write_shard(target, kept)
print(f"{len(kept)} of {len(tokens)} tokens")
