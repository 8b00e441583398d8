"""batches.py: every token once an epoch, whatever the layout."""

import numpy as np
import pytest
import torch

from ladder.batches import Batches
from ladder.corpus import Corpus
from ladder.errors import UsageError


def corpus_of(*sizes):
    """Tokens 0, 1, 2, … cut into shards of the given sizes."""
    ends = np.cumsum(sizes)
    stream = np.arange(ends[-1], dtype=np.uint16)
    return Corpus("count", "0" * 64, np.split(stream, ends[:-1]))


ROWS = corpus_of(33, 7, 61)  # 25 rows of 4 tokens


def read(batches, count):
    """The first token of each row of the next batches. Every target is the next one."""
    first = []
    for _ in range(count):
        x, y = next(batches)
        assert torch.equal(y, x + 1)
        first += x[:, 0].tolist()
    return first


def test_an_epoch_holds_every_token_once_in_order_across_shards():
    corpus = corpus_of(12, 1, 28, 5, 40)  # 86 tokens: 21 rows and 1 left
    batches = Batches(corpus, B=2, T=4)
    assert (batches.rows_per_epoch, batches.dropped) == (21, 1)
    x, _ = next(batches)
    assert torch.equal(x, torch.arange(8).view(2, 4))
    assert read(batches, 10) == [*range(8, 84, 4), 0]  # after the last row comes the first
    assert Batches(corpus_of(9), B=2, T=4).rows_per_epoch == 2  # a batch and its last target
    with pytest.raises(UsageError, match=r"has 8 tokens, but one batch needs 9 \(B=2 x T=4 \+ 1\)"):
        Batches(corpus_of(8), B=2, T=4)
    corpus.shards[0][:] = 65535
    with pytest.raises(UsageError, match="has token id 65535"):
        next(Batches(corpus, B=2, T=4))


@pytest.mark.parametrize("shuffle", [None, 7])
def test_any_number_of_ranks_reads_what_one_process_would(shuffle):
    one = Batches(ROWS, 1, 4, shuffle=shuffle)
    whole = read(one, 48)
    ranks = [Batches(ROWS, 2, 4, rank, 3, shuffle) for rank in range(3)]
    together = []
    for _ in range(8):
        for rank in ranks:
            together += read(rank, 1)
    assert together == whole
    assert {rank.position for rank in ranks} == {one.position} == {48}
    # As a checkpoint of any layout has it; the second epoch begins at 25.
    assert read(Batches(ROWS, 2, 4, shuffle=shuffle, position=20), 14) == whole[20:]


def test_a_shuffled_epoch_has_every_row_once_in_an_order_of_its_own():
    batches = Batches(ROWS, 5, 4, shuffle=1)
    orders = [[*range(0, 100, 4)], read(batches, 5), read(batches, 5)]
    orders.append(read(Batches(ROWS, 5, 4, shuffle=2), 5))
    assert all(sorted(order) == orders[0] for order in orders)
    assert len(set(map(tuple, orders))) == 4


def test_another_seed_begins_elsewhere_and_reads_the_same_epoch():
    rows = {seed: read(Batches(ROWS, 5, 4, seed=seed), 5) for seed in range(1337, 1345)}
    assert len({order[0] for order in rows.values()}) == 8
    assert sorted(rows[1338]) == rows[1337]
    assert rows[1338][:10] == rows[1337][15:]  # 0.618 of 25 rows later
