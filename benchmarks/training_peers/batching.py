"""The same examples as padded, packed and variable-length batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tasklm.tokens.batches import TokenBatch, shuffled
from tasklm.tokens.example_streams import BUCKET
from tasklm.tokens.tokenizer import CLS, PAD, SEP, SPECIALS

WAYS = (
    "padded to the longest of all",
    "padded per batch",
    "padded, sorted by length",
    "packed rows",
    "variable-length",
)
_MULTIPLE = 8  # row lengths are rounded up to it, as tasklm does for task batches


@dataclass
class Examples:
    """Token numbers of examples, each [CLS] … [SEP]."""

    rows: list[np.ndarray]

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each example."""
        return np.array([len(row) for row in self.rows])

    @property
    def tokens(self) -> int:
        """The tokens of all of them."""
        return int(self.lengths.sum())

    @classmethod
    def draw(
        cls, lengths: Sequence[int], longest: int, count: int, vocabulary: int, seed: int
    ) -> Examples:
        """Returns random tokens with lengths drawn from those given, cut to `longest`."""
        random = np.random.default_rng(seed)
        drawn = np.clip(
            random.choice(np.asarray(lengths), count, replace=count > len(lengths)), 2, longest
        )
        rows = [random.integers(len(SPECIALS), vocabulary, length) for length in drawn]
        for row in rows:
            row[0], row[-1] = SPECIALS.index(CLS), SPECIALS.index(SEP)
        return cls(rows)


def batches(examples: Examples, way: str, batch: int, seed: int) -> list[TokenBatch]:
    """All examples once, `batch` of them at a time, laid out in one of WAYS."""
    lengths = examples.lengths
    order = shuffled(len(lengths), seed)
    if way == "padded, sorted by length":
        windows = [
            order[start : start + batch * BUCKET] for start in range(0, len(order), batch * BUCKET)
        ]
        order = np.concatenate(
            [window[np.argsort(lengths[window], kind="stable")] for window in windows]
        )
    together = [order[start : start + batch] for start in range(0, len(order), batch)]
    whole = _rounded(int(lengths.max()))
    if way == "variable-length":
        return [_variable(examples, numbers) for numbers in together]
    if way == "packed rows":
        return [_grid(examples, _first_fit(numbers, lengths, whole), whole) for numbers in together]
    widths = [
        whole if way == "padded to the longest of all" else _rounded(int(lengths[numbers].max()))
        for numbers in together
    ]
    return [
        _grid(examples, [[number] for number in numbers], width)
        for numbers, width in zip(together, widths, strict=True)
    ]


def _rounded(length: int) -> int:
    return -(-length // _MULTIPLE) * _MULTIPLE


def _first_fit(numbers: np.ndarray, lengths: np.ndarray, width: int) -> list[list[int]]:
    """The examples of each row: the longest first, each into the first row that has room for it."""
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(numbers, key=lambda number: (-lengths[number], number)):
        place = next((row for row, left in enumerate(room) if left >= lengths[number]), None)
        if place is None:
            rows.append([])
            room.append(width)
            place = len(rows) - 1
        rows[place].append(number)
        room[place] -= lengths[number]
    return rows


def _grid(examples: Examples, rows: list[list[int]], width: int) -> TokenBatch:
    """Rows of examples laid end to end and padded to `width`."""
    ids = np.full((len(rows), width), SPECIALS.index(PAD), np.int64)
    pieces, positions = np.zeros_like(ids), np.zeros_like(ids)
    for row, numbers in enumerate(rows):
        start = 0
        for piece, number in enumerate(numbers, start=1):
            end = start + len(examples.rows[number])
            ids[row, start:end], pieces[row, start:end], positions[row, start:end] = (
                examples.rows[number],
                piece,
                np.arange(end - start),
            )
            start = end
    return TokenBatch(*map(torch.from_numpy, (ids, pieces, positions)))


def _variable(examples: Examples, numbers: np.ndarray) -> TokenBatch:
    """One row of all examples end to end, with the bounds of each."""
    lengths = examples.lengths[numbers]
    batch = _grid(examples, [list(numbers)], int(lengths.sum()))
    batch.bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    batch.longest = int(examples.lengths.max())
    return batch
