"""Batches of a corpus: (B, T) token ids and their targets, the same for any number of ranks."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from ladder.corpus import GPT2_VOCAB_SIZE, Corpus
from ladder.errors import UsageError

DEFAULT_SEED = 1337
GOLDEN_RATIO = 0.6180339887498949  # its multiples, modulo 1, spread evenly whatever their number


@dataclass
class Batches:
    """Iterator over batches of B rows of T tokens; after the last row it starts again.

    Row r has the tokens r·T … r·T+T-1, and its targets are r·T+1 … r·T+T. Each of `world_size`
    processes takes its own B of the next world_size·B rows: together they read what one process
    would. With a `shuffle` seed each epoch has its own random order of all rows.

    The default `seed` begins an epoch at row 0, another one somewhere else and then goes round:
    runs of several seeds read different text.

    `position` counts the rows that all ranks have read. Checkpoints save it; set it to resume
    there. Raises UsageError if the corpus is shorter than one batch.
    """

    corpus: Corpus
    B: int
    T: int
    rank: int = 0
    world_size: int = 1
    shuffle: int | None = None
    seed: int = DEFAULT_SEED
    position: int = 0

    def __post_init__(self):
        tokens = len(self.corpus)
        needed = self.B * self.T + 1
        if tokens < needed:
            raise UsageError(
                f"corpus {self.corpus.name} has {tokens} tokens, but one batch needs {needed} "
                f"(B={self.B} x T={self.T} + 1): use more text, or lower --batch-size or --seq-len"
            )
        # dropped: tokens at the end
        self.rows_per_epoch, self.dropped = divmod(tokens - 1, self.T)
        turns = (self.seed - DEFAULT_SEED) * GOLDEN_RATIO
        self.first_row = int(turns % 1 * self.rows_per_epoch)

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        """x and y of this rank's next rows, each (B, T) int64 on the CPU."""
        first = self.position + self.rank * self.B
        self.position += self.world_size * self.B
        return self.rows(range(first, first + self.B))

    def rows(self, numbers: range) -> tuple[torch.Tensor, torch.Tensor]:
        """x and y of these rows, each (len(numbers), T) int64 on the CPU.

        Row numbers continue from one epoch to the next. Raises UsageError if a row has a token id
        that GPT-2 does not have.
        """
        rows = [self.corpus.read(self._start(number), self.T + 1) for number in numbers]
        tokens = np.stack(rows)  # (rows, T + 1) uint16
        top = tokens.max()
        if top >= GPT2_VOCAB_SIZE:
            raise UsageError(
                f"corpus {self.corpus.name} has token id {top}, but the GPT-2 vocabulary ends "
                f"at {GPT2_VOCAB_SIZE - 1}: was it made with another tokenizer?"
            )
        stream = torch.from_numpy(tokens.astype(np.int64))
        return stream[:, :-1].contiguous(), stream[:, 1:].contiguous()

    def _start(self, number: int) -> int:
        """Where in the corpus a row begins."""
        epoch, row = divmod(number, self.rows_per_epoch)
        row = (row + self.first_row) % self.rows_per_epoch
        if self.shuffle is not None:
            row = int(shuffled(self.rows_per_epoch, self.shuffle, epoch)[row])
        return row * self.T


@lru_cache(maxsize=1)
def shuffled(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the rows in an epoch: (rows,)."""
    return np.random.default_rng((seed, epoch)).permutation(rows)
