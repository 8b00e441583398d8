"""Batches of a corpus in reading order."""

import numpy as np
import torch

from ladder.corpus import GPT2_VOCAB_SIZE, Corpus
from ladder.errors import BadInput


def read_rows(corpus: Corpus, T: int, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of some rows of a corpus: (len(rows), T) int64 each, on the CPU.

    Row r is the tokens r·T … r·T+T-1, and y is x shifted by one; after the last whole row the
    first comes again. Whoever reads rows 0, 1, 2, … reads the same, in batches of any size.
    """
    per_epoch = (len(corpus) - 1) // T
    tokens = np.stack([corpus.read(row % per_epoch * T, T + 1) for row in rows])
    stream = torch.from_numpy(tokens.astype(np.int64))
    return stream[:, :-1].contiguous(), stream[:, 1:].contiguous()


class Batches:
    """Batches of a corpus in reading order; after the last whole batch the first comes again.

    Raises BadInput where the corpus does not hold one batch.
    """

    def __init__(self, corpus: Corpus, B: int, T: int):
        if len(corpus) < B * T + 1:
            raise BadInput(
                f"corpus {corpus.name} has {len(corpus)} tokens, but one batch needs {B * T + 1} "
                f"(B={B} x T={T} + 1): use more text or a smaller --batch-size or --seq-len"
            )
        self.corpus, self.B, self.T = corpus, B, T
        self.per_epoch = (len(corpus) - 1) // (B * T)
        self.index = 0  # of the next batch, within the epoch

    @property
    def dropped(self) -> int:
        """Tokens at the end of the corpus that are in no whole batch, neither in x nor in y."""
        return len(self.corpus) - 1 - self.per_epoch * self.B * self.T

    def check_vocabulary(self, batches: int) -> None:
        """Raise BadInput if one of the first `batches` holds an id that GPT-2 does not have."""
        left = min(batches, self.per_epoch) * self.B * self.T + 1
        for shard in self.corpus.shards:
            top = int(shard[:left].max(initial=0))
            if top >= GPT2_VOCAB_SIZE:
                raise BadInput(
                    f"corpus {self.corpus.name} has token id {top}, but the GPT-2 vocabulary ends "
                    f"at {GPT2_VOCAB_SIZE - 1}: was it made with another tokenizer?"
                )
            left -= min(left, len(shard))

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        """x and y, each (B, T) int64 on the CPU; y is x shifted by one token."""
        size = self.B * self.T
        tokens = self.corpus.read(self.index * size, size + 1).astype(np.int64)
        self.index = (self.index + 1) % self.per_epoch
        stream = torch.from_numpy(tokens)
        return stream[:-1].view(self.B, self.T), stream[1:].view(self.B, self.T)
