"""Batches of a corpus: (B, T) token ids and their targets, the same for any number of ranks."""

import numpy as np
import torch

from ladder.corpus import GPT2_VOCAB_SIZE, Corpus
from ladder.errors import BadInput


class Batches:
    """Iterator over batches of B rows of T tokens; after the last row it starts again.

    Row r has the tokens r·T … r·T+T-1, and its targets are r·T+1 … r·T+T. Each of `ranks` processes
    takes its own B of the next ranks·B rows: together they read what one process would. With a
    `shuffle` seed each epoch has its own order of all rows.

    `position` counts the rows that all ranks have read. Checkpoints save it; set it to resume
    there. Raises BadInput if the corpus is shorter than one batch.
    """

    def __init__(self, corpus: Corpus, B: int, T: int, rank=0, ranks=1, shuffle=None):
        if len(corpus) < B * T + 1:
            raise BadInput(
                f"corpus {corpus.name} has {len(corpus)} tokens, but one batch needs {B * T + 1} "
                f"(B={B} x T={T} + 1): use more text or a smaller --batch-size or --seq-len"
            )
        self.corpus = corpus
        self.B = B
        self.T = T
        self.rank = rank
        self.ranks = ranks
        self.shuffle = shuffle
        self.rows_per_epoch, self.dropped = divmod(len(corpus) - 1, T)  # dropped: tokens at the end
        self.position = 0
        self.epoch = None  # the one that `order` is of
        self.order = None

    def __next__(self):
        """x and y of this rank's next rows, each (B, T) int64 on the CPU."""
        first = self.position + self.rank * self.B
        self.position += self.ranks * self.B
        return self.rows(range(first, first + self.B))

    def rows(self, numbers: range):
        """x and y of these rows, each (len(numbers), T) int64 on the CPU.

        Row numbers continue from one epoch to the next. Raises BadInput if a row has a token id
        that GPT-2 does not have.
        """
        rows = [self.corpus.read(self._start(number), self.T + 1) for number in numbers]
        tokens = np.stack(rows)  # (rows, T + 1) uint16
        top = tokens.max()
        if top >= GPT2_VOCAB_SIZE:
            raise BadInput(
                f"corpus {self.corpus.name} has token id {top}, but the GPT-2 vocabulary ends "
                f"at {GPT2_VOCAB_SIZE - 1}: was it made with another tokenizer?"
            )
        stream = torch.from_numpy(tokens.astype(np.int64))
        return stream[:, :-1].contiguous(), stream[:, 1:].contiguous()

    def _start(self, number: int) -> int:
        """Where in the corpus a row begins."""
        epoch, row = divmod(number, self.rows_per_epoch)
        if self.shuffle is None:
            return row * self.T
        if epoch != self.epoch:
            generator = np.random.default_rng((self.shuffle, epoch))
            self.order = generator.permutation(self.rows_per_epoch)
            self.epoch = epoch
        return int(self.order[row]) * self.T
