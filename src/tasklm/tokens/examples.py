"""Task examples as tokens, and their batches: padded rows sorted by length, or packed rows of one shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tasklm.tasks.base import NONE, Task, Unit
from tasklm.tasks.examples import Example
from tasklm.tasks.marks import MOST as MOST_MARKS
from tasklm.tokens.batches import TokenBatch, padded_rows, shuffled
from tasklm.tokens.packing import first_fit
from tasklm.tokens.tokenizer import Vocabulary

BUCKET = 16  # batches whose examples are dealt out together, by their lengths
MOST = 24  # examples that share a packed row
FEW_PLACES = 1 + MOST_MARKS  # of every example, at most, for which a packed row has room by the number of its examples
TRIED_EPOCHS, TRIED_BATCHES = 24, 2000  # at most, for the shape that all packed batches get
LONG_ROW = 1.04  # cost of a token in a packed row of twice the longest example, beside one in a row of once it


class EncodedExamples:
    """Task examples as units: rows of tokens, the places that the head reads, and the targets there.

    Units next to one another that are answered as one (the options of a choice) make a group; a batch is made of whole groups.
    """

    def __init__(self, examples: Sequence[Example], units: Sequence[Unit], vocabulary: Vocabulary, length: int, together: int = 1) -> None:
        self.examples, self.units, self.vocabulary, self.length, self.together = examples, units, vocabulary, length, together
        sizes = np.array([len(unit.tokens) for unit in units], np.int64)
        self.lengths = sizes.reshape(-1, together).max(1, initial=1)  # of the groups: that of their longest unit
        counts = {len(unit.places) for unit in units} or {1}
        self.most_places, self.few_places = max(counts), len(counts) == 1 and max(counts) <= FEW_PLACES
        self.pairs = any(unit.second for unit in units)

    @classmethod
    def of(cls, task: Task, examples: Sequence[Example], vocabulary: Vocabulary, length: int) -> EncodedExamples:
        """Returns examples as their task encodes them."""
        return cls(examples, task.encode(examples, vocabulary, length), vocabulary, length, task.together)

    def __len__(self) -> int:
        return len(self.lengths)

    def numbers_of(self, groups: np.ndarray) -> list[int]:
        """Returns the numbers of the units of some groups."""
        return (np.asarray(groups)[:, None] * self.together + np.arange(self.together)).flatten().tolist()

    def padded(self, groups: np.ndarray, shape: tuple[int, int, int] | None = None) -> TokenBatch:
        """Returns the units of some groups, one a row, padded to the longest of them (rounded up to a multiple of 8).

        Or all batches have one shape: groups, tokens, places. Rows of padding then fill up the last batch.
        """
        units = [self.units[number] for number in self.numbers_of(groups)]
        if shape is None:
            batch, places = padded_rows([unit.tokens for unit in units], self.vocabulary.pad, 8), max(len(unit.places) for unit in units)
        else:
            units += [Unit([], [], None)] * (shape[0] * self.together - len(units))
            batch, places = padded_rows([unit.tokens for unit in units], self.vocabulary.pad, length=shape[1]), shape[2]
        read, wanted = np.zeros((len(units), places), np.int64), self._no_targets((len(units), places))
        for row, unit in enumerate(units):
            read[row, : len(unit.places)] = unit.places
            if wanted is not None and unit.targets is not None:
                wanted[row, : len(unit.places)] = unit.targets
        segments = None
        if self.pairs:
            columns = np.arange(batch.ids.shape[1])
            seconds = np.array([unit.second or len(columns) for unit in units])
            segments = torch.from_numpy(((columns >= seconds[:, None]) & (batch.pieces.numpy() > 0)).astype(np.int64))
        targets = None if wanted is None else torch.from_numpy(wanted)
        return replace(batch, targets=targets, segments=segments, places=torch.from_numpy(read), together=self.together)

    def _no_targets(self, places: tuple[int, int]) -> np.ndarray | None:
        """Returns targets of which there are none yet, or None where the examples are not labelled."""
        known = next((unit.targets for unit in self.units if unit.targets is not None), None)
        return None if known is None else np.full((*places, *known.shape[1:]), NONE, known.dtype)

    def packed(self, numbers: np.ndarray, rows: int, length: int) -> TokenBatch:
        """Returns some units laid end to end in `rows` rows of `length` (more if they do not fit), each a piece of its own."""
        where = first_fit(self.lengths[numbers], length, MOST)
        rows = max(rows, int(where.max()) + 1)
        grid, places = (rows, length), (rows, MOST * self.most_places if self.few_places else length)
        ids, pieces, positions = np.full(grid, self.vocabulary.pad, np.int64), np.zeros(grid, np.int64), np.zeros(grid, np.int64)
        segments = np.zeros(grid, np.int64) if self.pairs else None
        read, wanted = np.zeros(places, np.int64), self._no_targets(places)
        filled, held, asked = (np.zeros(rows, np.int64) for _ in range(3))
        for number, row in zip(numbers, where, strict=True):
            unit, start = self.units[number], filled[row]
            here = slice(start, start + len(unit.tokens))
            held[row] += 1
            ids[row, here], pieces[row, here], positions[row, here] = unit.tokens, held[row], np.arange(len(unit.tokens))
            if segments is not None and unit.second:
                segments[row, start + unit.second : here.stop] = 1
            there = slice(asked[row], asked[row] + len(unit.places))
            read[row, there] = start + np.asarray(unit.places)
            if wanted is not None and unit.targets is not None:
                wanted[row, there] = unit.targets
            filled[row], asked[row] = here.stop, there.stop
        ids_, pieces_, positions_, read_ = (torch.from_numpy(array) for array in (ids, pieces, positions, read))
        targets_ = None if wanted is None else torch.from_numpy(wanted)
        segments_ = None if segments is None else torch.from_numpy(segments)
        return TokenBatch(ids_, pieces_, positions_, targets_, segments_, places=read_, longest=self.length, most=MOST)

    def in_order(self, batch: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
        """Yields every group once, padded, sorted by length, with the numbers of the groups."""
        order = np.argsort(self.lengths, kind="stable")
        for start in range(0, len(order), batch):
            yield order[start : start + batch], self.padded(order[start : start + batch])


class ExampleStream:
    """Endless batches of task examples; every epoch has each example once, the last batch may be smaller.

    Padded batches hold examples of about one length, so that little padding is computed. A compiled model needs batches of
    one shape: packed ones, which hold examples of all lengths, dealt out so that every batch has about as many tokens, or, for
    heads that must have a row for each unit, batches padded to the longest example of all.
    """

    def __init__(self, examples: EncodedExamples, batch: int, seed: int, one_shape: bool = False, packs: bool = True) -> None:
        self.examples, self.batch, self.seed, self.packed = examples, batch, seed, one_shape and packs
        self.epoch, self.index = 0, 0
        self._batches: list[np.ndarray] = []
        self.rows, self.length = self._packed_shape() if self.packed else (batch, examples.length)
        longest = -(-int(examples.lengths.max()) // 8) * 8
        self._shape = (batch, longest, examples.most_places) if one_shape and not packs else None

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
        return self.examples.packed(numbers, self.rows, self.length) if self.packed else self.examples.padded(numbers, self._shape)

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
