"""Rows of tokens as arrays: what ONNX files read, and what batches of tensors are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    """Padded or packed rows; the fields are those of `batches.TokenBatch`, and mean the same."""

    ids: NDArray[np.int64]  # (rows, length)
    pieces: NDArray[np.int64]  # (rows, length)
    positions: NDArray[np.int64]  # (rows, length)
    targets: NDArray[Any] | None = None
    segments: NDArray[np.int64] | None = None
    places: NDArray[np.int64] | None = None
    wide: NDArray[np.float32] | None = None
    taught: NDArray[np.float32] | None = None
    lasts: NDArray[np.int64] | None = None
    together: int = 1
    turn: int = 0


def pad_rows(
    rows: Sequence[Sequence[int] | np.ndarray], pad: int, multiple: int = 1, length: int = 0
) -> Rows:
    """Rows of tokens, each a piece, padded to `length`, or else to the longest, by a multiple."""
    sizes = np.array([len(row) for row in rows])
    longest = length or -(-int(sizes.max()) // multiple) * multiple
    ids = np.full((len(rows), longest), pad, np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    inside = np.arange(longest) < sizes[:, None]
    positions = np.where(inside, np.arange(longest), 0)
    return Rows(ids, inside.astype(np.int64), positions)
