"""The halves of texts, as batches of the same form."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tasklm.tokens.batches import TokenBatch


def halves_of(batch: TokenBatch, pad: int, holds: Tensor) -> tuple[TokenBatch, TokenBatch, Tensor]:
    """The first and the second half of every text between its first token and its last, [SEP],
    with these two around it; and which answers are of a text that has both.

    A half begins where its text begins, with positions of its own, so that it is read as a text by
    itself; padding follows it.
    """
    ids, pieces = batch.ids.numpy(), batch.pieces.numpy()
    halves = [_Half(batch, pad) for _ in range(2)]
    long = np.zeros(pieces.shape, bool)  # at the first token of texts that have two halves
    for row in range(len(ids)):
        for begin, end in _texts(pieces[row]):
            middle = begin + 1 + (end - begin - 1) // 2
            inner = (slice(begin + 1, middle), slice(middle, end - 1))
            long[row, begin] = end - begin > 3
            for half, own in zip(halves, inner, strict=True):
                columns = np.array([begin, *range(own.start, own.stop), end - 1])
                half.put(row, begin, columns)
    assert batch.places is not None
    both = torch.from_numpy(long).gather(1, batch.places) & holds
    return halves[0].batch(), halves[1].batch(), both


def _texts(pieces: np.ndarray) -> list[tuple[int, int]]:
    """Where the texts of a row begin, and where they have ended."""
    edges = np.flatnonzero(np.diff(pieces, prepend=-1, append=-1))
    runs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [(begin, end) for begin, end in runs if pieces[begin]]


class _Half:
    """A batch of padding that is filled with the halves of another's texts."""

    def __init__(self, whole: TokenBatch, pad: int) -> None:
        self.whole = whole
        shape = tuple(whole.ids.shape)
        self.ids = np.full(shape, pad, np.int64)
        self.pieces, self.positions, self.segments = (np.zeros(shape, np.int64) for _ in range(3))

    def put(self, row: int, begin: int, columns: np.ndarray) -> None:
        """Puts the tokens of some columns next to one another, from where their text begins."""
        here = slice(begin, begin + len(columns))
        self.ids[row, here] = self.whole.ids.numpy()[row, columns]
        self.pieces[row, here] = self.whole.pieces.numpy()[row, begin]
        self.positions[row, here] = np.arange(len(columns))
        if self.whole.segments is not None:
            self.segments[row, here] = self.whole.segments.numpy()[row, columns]

    def batch(self) -> TokenBatch:
        """The batch; there is padding between its texts."""
        segments = None
        if self.whole.segments is not None:
            segments = torch.from_numpy(self.segments)
        return TokenBatch(
            ids=torch.from_numpy(self.ids),
            pieces=torch.from_numpy(self.pieces),
            positions=torch.from_numpy(self.positions),
            segments=segments,
            places=self.whole.places,
            longest=self.whole.longest,
            most=2 * self.whole.most,
        )
