"""Batches whose order is a function of the seed and whose position is part of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasklm.tokens.packing import Plan, fill_rows, plan_rows
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary

WINDOW = 1 << 18  # passages packed at a time: bounds the plan's memory to about 20 MB
BUCKET = 16  # batches whose examples are sorted by length together, so that little padding is computed


@dataclass
class TokenBatch:
    """Rows of tokens; tokens attend to tokens of the same piece, and piece 0 is padding."""

    ids: Tensor  # (rows, length) int64
    pieces: Tensor  # (rows, length) int64
    positions: Tensor  # (rows, length) int64
    targets: Tensor | None = None  # (examples, …): the task's targets, for task batches
    segments: Tensor | None = None  # (rows, length) int64: 0 or 1 in pairs of texts; None: all 0
    bounds: Tensor | None = None  # (pieces + 1,) int32: where pieces begin in the flattened batch, and its end; None: not counted
    longest: int = 0  # tokens that the longest piece may have, where `bounds` is given

    def to(self, device: torch.device) -> TokenBatch:
        """Returns the batch on a device."""
        moved: dict[str, Any] = {
            field.name: value.to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)

    def split(self, parts: int) -> list[TokenBatch]:
        """Returns the batch as at most `parts` micro-batches of nearly equal size."""
        targets: Sequence[Tensor | None] = [None] * parts if self.targets is None else self.targets.tensor_split(parts)
        segments: Sequence[Tensor | None] = [None] * parts if self.segments is None else self.segments.tensor_split(parts)
        rows = zip(*(t.tensor_split(parts) for t in (self.ids, self.pieces, self.positions)), targets, segments, strict=True)
        return [TokenBatch(*row) for row in rows if len(row[0])]


def shuffled(count: int, *seed: int) -> np.ndarray:
    """Returns 0 … count−1 in an order that depends on the seed alone."""
    return np.random.default_rng(seed).permutation(count)


class PackedStream:
    """Endless batches of packed passages, in a new order every epoch."""

    def __init__(self, shards: Shards, vocabulary: Vocabulary, length: int, batch: int, seed: int) -> None:
        self.shards, self.vocabulary, self.length, self.batch, self.seed = shards, vocabulary, length, batch, seed
        self.epoch, self.window, self.row = 0, 0, 0
        self._plan: Plan | None = None
        self._rows = np.zeros(0, np.int64)

    def state(self) -> dict[str, Any]:
        """Returns the position of the next batch."""
        return {"epoch": self.epoch, "window": self.window, "row": self.row}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state` gave."""
        self.epoch, self.window, self.row = state["epoch"], state["window"], state["row"]
        self._plan = None

    def next(self) -> TokenBatch:
        """Returns the next batch; the rest of a window smaller than a batch is filled up from the next window."""
        parts: list[tuple[np.ndarray, ...]] = []
        missing = self.batch
        while missing:
            plan = self._current_plan()
            rows = self._rows[self.row : self.row + missing]
            if len(rows):
                marks = self.vocabulary.cls, self.vocabulary.sep, self.vocabulary.pad
                parts.append(fill_rows(plan, rows, self.shards.tokens, self.length, *marks))
                missing -= len(rows)
                self.row += len(rows)
            if self.row >= len(self._rows):
                self._next_window()
        ids, pieces, positions = (torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*parts, strict=True))
        return TokenBatch(ids, pieces, positions)

    def _next_window(self) -> None:
        self.window, self.row, self._plan = self.window + 1, 0, None
        if self.window * WINDOW >= len(self.shards):
            self.epoch, self.window = self.epoch + 1, 0

    def _current_plan(self) -> Plan:
        if self._plan is None:
            order = shuffled(len(self.shards), self.seed, self.epoch)[self.window * WINDOW : (self.window + 1) * WINDOW]
            self._plan = plan_rows(self.shards.offsets, order, self.length)
            self._rows = shuffled(len(self._plan), self.seed, self.epoch, self.window)
        return self._plan


class EncodedExamples:
    """Task examples as tokens ([CLS] text [SEP], cut to `length`) with their targets."""

    def __init__(self, texts: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int, targets: Tensor | None) -> None:
        self.vocabulary, self.targets = vocabulary, targets
        self.rows = [_join(vocabulary, parts, length) for parts in texts]
        self.lengths = np.array([len(row) for row in self.rows], np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, numbers: np.ndarray) -> TokenBatch:
        """Returns some examples, padded to the longest of them (rounded up to a multiple of 8)."""
        longest = -(-int(self.lengths[numbers].max()) // 8) * 8
        ids = np.full((len(numbers), longest), self.vocabulary.pad, np.int64)
        for i, number in enumerate(numbers):
            ids[i, : self.lengths[number]] = self.rows[number]
        inside = np.arange(longest) < self.lengths[numbers][:, None]
        positions = np.where(inside, np.arange(longest), 0)
        targets = None if self.targets is None else self.targets[torch.from_numpy(np.asarray(numbers))]
        return TokenBatch(torch.from_numpy(ids), torch.from_numpy(inside.astype(np.int64)), torch.from_numpy(positions), targets)

    def in_order(self, batch: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
        """Yields every example once, sorted by length, with the numbers of the examples."""
        order = np.argsort(self.lengths, kind="stable")
        for start in range(0, len(order), batch):
            yield order[start : start + batch], self.batch(order[start : start + batch])


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
    """Endless batches of task examples; every epoch has each example once, the last batch may be smaller."""

    def __init__(self, examples: EncodedExamples, batch: int, seed: int) -> None:
        self.examples, self.batch, self.seed = examples, batch, seed
        self.epoch, self.index = 0, 0
        self._batches: list[np.ndarray] = []

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
        batch = self.examples.batch(self._batches[self.index])
        self.index += 1
        if self.index == len(self._batches):
            self.epoch, self.index, self._batches = self.epoch + 1, 0, []
        return batch

    def _epoch(self) -> list[np.ndarray]:
        order = shuffled(len(self.examples), self.seed, self.epoch)
        batches = []
        for start in range(0, len(order), self.batch * BUCKET):
            bucket = order[start : start + self.batch * BUCKET]
            bucket = bucket[np.argsort(self.examples.lengths[bucket], kind="stable")]
            batches += [bucket[i : i + self.batch] for i in range(0, len(bucket), self.batch)]
        return [batches[i] for i in shuffled(len(batches), self.seed, self.epoch, 1)]
