"""Task examples as tokens, and their batches: padded rows sorted by length, or packed rows of one shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasklm.tokens.batches import TokenBatch, padded_rows, shuffled
from tasklm.tokens.masking import NONE
from tasklm.tokens.packing import first_fit
from tasklm.tokens.tokenizer import Vocabulary

BUCKET = 16  # batches whose examples are dealt out together, by their lengths
MOST = 24  # examples that share a packed row
TRIED_EPOCHS, TRIED_BATCHES = 24, 2000  # at most, for the shape that all packed batches get
LONG_ROW = 1.04  # cost of a token in a packed row of twice the longest example, beside one in a row of once it


class EncodedExamples:
    """Task examples as tokens ([CLS] text [SEP], cut to `length`) with their targets."""

    def __init__(self, texts: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int, targets: Tensor | None) -> None:
        self.vocabulary, self.targets, self.length = vocabulary, targets, length
        self.rows = [_join(vocabulary, parts, length) for parts in texts]
        self.lengths = np.array([len(row) for row in self.rows], np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def padded(self, numbers: np.ndarray) -> TokenBatch:
        """Returns some examples, one a row, padded to the longest of them (rounded up to a multiple of 8)."""
        targets = None if self.targets is None else self.targets[torch.from_numpy(np.asarray(numbers))]
        return replace(padded_rows([self.rows[number] for number in numbers], self.vocabulary.pad, 8), targets=targets)

    def packed(self, numbers: np.ndarray, rows: int, length: int) -> TokenBatch:
        """Returns some examples laid end to end in `rows` rows of `length` (more if they do not fit), each a piece of its own."""
        where = first_fit(self.lengths[numbers], length, MOST)
        rows = max(rows, int(where.max()) + 1)
        grid, places = (rows, length), (rows, MOST)
        ids, pieces, positions = np.full(grid, self.vocabulary.pad, np.int64), np.zeros(grid, np.int64), np.zeros(grid, np.int64)
        firsts, held, filled = np.zeros(places, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        source = np.full(places, -1, np.int64)
        for number, row in zip(numbers, where, strict=True):
            start, size = filled[row], self.lengths[number]
            ids[row, start : start + size] = self.rows[number]
            positions[row, start : start + size] = np.arange(size)
            firsts[row, held[row]], source[row, held[row]] = start, number
            filled[row] += size
            held[row] += 1
            pieces[row, start : start + size] = held[row]
        targets = None
        if self.targets is not None:
            targets = self.targets[torch.from_numpy(np.maximum(source, 0))]
            targets[torch.from_numpy(source < 0)] = NONE
        ids_, pieces_, positions_, firsts_ = (torch.from_numpy(array) for array in (ids, pieces, positions, firsts))
        return TokenBatch(ids_, pieces_, positions_, targets, firsts=firsts_, longest=self.length)

    def in_order(self, batch: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
        """Yields every example once, padded, sorted by length, with the numbers of the examples."""
        order = np.argsort(self.lengths, kind="stable")
        for start in range(0, len(order), batch):
            yield order[start : start + batch], self.padded(order[start : start + batch])


def _join(vocabulary: Vocabulary, parts: Sequence[str], length: int) -> list[int]:
    """Returns [CLS] a [SEP] b [SEP] … cut to `length`; the longest part is cut first."""
    encoded = vocabulary.encode(parts)
    while sum(map(len, encoded)) > length - 1 - len(encoded):
        longest = max(encoded, key=len)
        excess = sum(map(len, encoded)) - (length - 1 - len(encoded))
        del longest[max(1, len(longest) - excess) :]
    row = [vocabulary.cls]
    for numbers in encoded:
        row += [*numbers, vocabulary.sep]
    return row


class ExampleStream:
    """Endless batches of task examples; every epoch has each example once, the last batch may be smaller.

    Padded batches hold examples of about one length, so that little padding is computed. Packed batches hold examples of
    all lengths, dealt out so that every batch has about as many tokens: all then have the one shape that a compiled
    model needs.
    """

    def __init__(self, examples: EncodedExamples, batch: int, seed: int, packed: bool = False) -> None:
        self.examples, self.batch, self.seed, self.packed = examples, batch, seed, packed
        self.epoch, self.index = 0, 0
        self._batches: list[np.ndarray] = []
        self.rows, self.length = self._packed_shape() if packed else (batch, examples.length)

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch)

    def state(self) -> dict[str, Any]:
        """Returns the position of the next batch."""
        return {"epoch": self.epoch, "index": self.index}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state` gave."""
        self.epoch, self.index = state["epoch"], state["index"]
        self._batches = []

    def next(self) -> TokenBatch:
        """Returns the next batch."""
        if not self._batches:
            self._batches = self._epoch()
        numbers = self._batches[self.index]
        self.index += 1
        if self.index == len(self._batches):
            self.epoch, self.index, self._batches = self.epoch + 1, 0, []
        return self.examples.packed(numbers, self.rows, self.length) if self.packed else self.examples.padded(numbers)

    def _epoch(self) -> list[np.ndarray]:
        order = shuffled(len(self.examples), self.seed, self.epoch)
        batches = []
        for start in range(0, len(order), self.batch * BUCKET):
            bucket = order[start : start + self.batch * BUCKET]
            bucket = bucket[np.argsort(self.examples.lengths[bucket], kind="stable")]
            if self.packed:
                batches += self._dealt(bucket, start)
            else:
                batches += [bucket[i : i + self.batch] for i in range(0, len(bucket), self.batch)]
        return [batches[i] for i in shuffled(len(batches), self.seed, self.epoch, 1)]

    def _dealt(self, bucket: np.ndarray, start: int) -> list[np.ndarray]:
        """Returns batches that each take one example of every run of neighbours in length."""
        count = -(-len(bucket) // self.batch)
        hands: list[list[int]] = [[] for _ in range(count)]
        for first in range(0, len(bucket), count):
            run = bucket[first : first + count]
            for hand, place in enumerate(shuffled(len(run), self.seed, self.epoch, 2, start + first)):
                hands[hand].append(int(run[place]))
        return [np.array(hand, np.int64) for hand in hands if hand]

    def _packed_shape(self) -> tuple[int, int]:
        """Returns rows enough for the batches of the first epochs, and a few more, and their length.

        In rows as long as the longest example, examples of just over half a row waste the rest; rows of twice the length
        cost attention a little more.
        """
        shapes, batches = [], self._first_batches()
        for times, price in ((1, 1.0), (2, LONG_ROW)):
            length = times * self.examples.length
            needed = max(int(first_fit(self.examples.lengths[batch], length, MOST).max()) + 1 for batch in batches)
            needed = min(self.batch, needed + needed // 32)
            shapes.append((price * needed * length, needed, length))
        return min(shapes)[1:]

    def _first_batches(self) -> list[np.ndarray]:
        """Returns the batches of some epochs: each deals otherwise, and small batches differ most."""
        batches = []
        for epoch in range(max(1, min(TRIED_EPOCHS, TRIED_BATCHES // len(self)))):
            self.epoch = epoch
            batches += self._epoch()
        self.epoch = 0
        return batches
