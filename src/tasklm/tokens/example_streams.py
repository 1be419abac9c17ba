"""Endless batches of task examples: of about one length, or of few shapes for a compiled model."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasklm.tokens.batches import TokenBatch, shuffled
from tasklm.tokens.examples import MOST, EncodedExamples, most_groups
from tasklm.tokens.packing import first_fit
from tasklm.tokens.task_draws import TaskDraws

BUCKET = 16  # batches whose examples are distributed together by length
TRIED_EPOCHS, TRIED_BATCHES = 24, 2000  # at most, for the shape that all packed batches get
# cost of a token in a packed row of twice the longest example, beside one in a row of once it
LONG_ROW = 1.04
LENGTHS = 3  # of batches that cannot be packed: each is compiled for itself
# share of padded tokens that another length must save to be worth its compilation
SHORTER = 0.85


class ExampleStream:
    """Endless batches of task examples; every epoch has each example once, or, of several tasks,
    what `draws` draw.

    Padded batches hold examples of about one length, so that little padding is computed. A compiled
    model needs batches of few shapes: packed ones, which have examples of all lengths, distributed
    so that every batch has about as many tokens, or, for heads that need a row for each unit,
    padded ones of one of LENGTHS lengths. `batch` counts rows: an example of several units (the
    options of a choice) takes as many.
    """

    def __init__(
        self,
        examples: EncodedExamples,
        batch: int,
        seed: int,
        one_shape: bool = False,
        packs: bool = True,
        draws: TaskDraws | None = None,
    ) -> None:
        self.examples, self.seed, self.packed = examples, seed, one_shape and packs
        self.batch = max(1, batch // examples.together)  # groups
        self.draws = draws
        self.epoch, self.index = 0, 0
        self._batches: list[np.ndarray] = []
        self.shape: tuple[int, int] | None = None  # rows and length of all packed batches
        self.lengths: list[int] = []  # of batches that are padded to few lengths
        if self.packed:
            self.shape = self._packed_shape(examples.totals, examples.together)
        elif one_shape:
            self.lengths = self._padded_lengths()
        self.text_shape = self.shape
        if self.packed and examples.together > 1:
            self.text_shape = self._packed_shape(examples.lengths, 1)

    def __len__(self) -> int:
        size = len(self.examples) if self.draws is None else self.draws.size
        return -(-size // self.batch)

    def state(self) -> dict[str, Any]:
        """The position of the next batch."""
        return {"epoch": self.epoch, "index": self.index}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes to a position returned by `state`."""
        self.epoch, self.index = state["epoch"], state["index"]
        self._batches = []

    def next_groups(self) -> np.ndarray:
        """The numbers of the next batch's groups."""
        if not self._batches:
            self._batches = self._epoch()
        groups = self._batches[self.index]
        self.index += 1
        if self.index == len(self._batches):
            self.epoch, self.index, self._batches = self.epoch + 1, 0, []
        return groups

    def times_read(self) -> np.ndarray:
        """How often each group was in the batches so far."""
        times = np.zeros(len(self.examples), np.int64)
        if self.draws is None:
            times += self.epoch
        else:
            for epoch in range(self.epoch):
                np.add.at(times, self.draws.order(self.seed, epoch), 1)
        for groups in (self._batches or self._epoch())[: self.index]:
            np.add.at(times, groups, 1)
        return times

    def next(self) -> TokenBatch:
        """The next batch, as the task reads it."""
        return self.task_batch(self.next_groups())

    def task_batch(self, groups: np.ndarray) -> TokenBatch:
        """All units of some groups."""
        if self.shape is not None:
            rows, length = self.shape
            return self.examples.packed(groups, rows, length)
        if not self.lengths:
            return self.examples.padded(groups)
        longest = self.examples.lengths[groups].max()
        length = next(length for length in self.lengths if length >= longest)
        return self.examples.padded(groups, (self.batch, length, self.examples.most_places))

    def text_batch(self, groups: np.ndarray, seed: int) -> TokenBatch:
        """One unit of each group, drawn by the seed, as a language model reads them."""
        if self.examples.together == 1:
            return self.task_batch(groups)
        unit = seed % self.examples.together
        if self.text_shape is not None:
            rows, length = self.text_shape
            return self.examples.packed_texts(groups, unit, rows, length)
        return self.examples.padded_texts(groups, unit)

    def _epoch(self) -> list[np.ndarray]:
        if self.draws is None:
            order = shuffled(len(self.examples), self.seed, self.epoch)
        else:
            order = self.draws.order(self.seed, self.epoch)
        sizes = self.examples.totals if self.packed else self.examples.lengths
        batches = []
        for start in range(0, len(order), self.batch * BUCKET):
            bucket = order[start : start + self.batch * BUCKET]
            bucket = bucket[np.argsort(sizes[bucket], kind="stable")]
            if self.packed:
                batches += self._dealt(bucket, start)
            else:
                batches += [bucket[i : i + self.batch] for i in range(0, len(bucket), self.batch)]
        return [batches[i] for i in shuffled(len(batches), self.seed, self.epoch, 1)]

    def _dealt(self, bucket: np.ndarray, start: int) -> list[np.ndarray]:
        """Distributes examples sorted by length over batches, one of every run of neighbours to
        each.
        """
        count = -(-len(bucket) // self.batch)
        hands: list[list[int]] = [[] for _ in range(count)]
        for first in range(0, len(bucket), count):
            run = bucket[first : first + count]
            order = shuffled(len(run), self.seed, self.epoch, 2, start + first)
            for hand, place in enumerate(order):
                hands[hand].append(int(run[place]))
        return [np.array(hand, np.int64) for hand in hands if hand]

    def _packed_shape(self, sizes: np.ndarray, together: int) -> tuple[int, int]:
        """Rows enough for the batches of the first epochs, and a few more, and their length.

        In rows as long as the longest example, examples of just over half a row waste the rest;
        rows of twice the length cost attention a little more.
        """
        shapes, batches = [], self._first_batches()
        for times, price in ((1, 1.0), (2, LONG_ROW)):
            length = times * together * self.examples.length
            most = MOST if together == 1 else most_groups(together)
            needed = max(int(first_fit(sizes[batch], length, most).max()) + 1 for batch in batches)
            needed = min(self.batch, needed + needed // 32)
            shapes.append((price * needed * length, needed, length))
        return min(shapes)[1:]

    def _padded_lengths(self) -> list[int]:
        """At most LENGTHS lengths, multiples of 8, to pad batches to; the last fits all."""
        batches = self._first_batches()
        longest = -(-int(self.examples.lengths.max()) // 8) * 8
        of_batches = [int(self.examples.lengths[batch].max()) for batch in batches]
        needed = np.sort([-(-length // 8) * 8 for length in of_batches])
        lengths, cost = [longest], float(longest * len(needed))
        while len(lengths) < LENGTHS:
            tried = [
                (_padded_tokens(needed, [*lengths, length]), int(length))
                for length in np.unique(needed)
            ]
            best, length = min(tried)
            if best > SHORTER * cost:
                break
            lengths, cost = sorted([*lengths, length]), float(best)
        return lengths

    def _first_batches(self) -> list[np.ndarray]:
        """The batches of some epochs: each is distributed differently, and small batches differ
        most.
        """
        batches = []
        for epoch in range(max(1, min(TRIED_EPOCHS, TRIED_BATCHES // len(self)))):
            self.epoch = epoch
            batches += self._epoch()
        self.epoch = 0
        return batches


def _padded_tokens(needed: np.ndarray, lengths: list[int]) -> int:
    """Tokens of one row of each batch, when batches are padded to the next of the lengths."""
    ladder = np.sort(lengths)
    return int(ladder[np.searchsorted(ladder, needed)].sum())
