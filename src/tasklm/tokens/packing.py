"""Packing: passages end to end in rows of fixed length, each piece with its own [CLS] and [SEP].

A passage that does not fit is cut and continues in the next row as a separate piece, so no space is
wasted. Pieces of one row are numbered; attention does not cross from one to another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasklm.corpus.compiling import compiled_when_called

TILE = 128  # tokens whose attention one program of a GPU computes at once
SHORTEST = 8  # a rest of a row shorter than this stays padding: too little context to learn from


@dataclass
class Plan:
    """Pieces in the order of their rows."""

    starts: np.ndarray  # int64: first token of the piece in the flat token array
    lengths: np.ndarray  # int32: tokens of the piece, [CLS] and [SEP] not counted
    row_offsets: np.ndarray  # int64[rows + 1]: pieces of each row

    def __len__(self) -> int:
        return len(self.row_offsets) - 1


def plan_rows(offsets: np.ndarray, order: np.ndarray, length: int) -> Plan:
    """How the passages, taken in `order`, fill rows of `length` tokens."""
    starts, lengths, rows = _plan(np.asarray(offsets), np.asarray(order), length, SHORTEST)
    count = 1 + int(rows.max(initial=-1))
    row_offsets = np.searchsorted(rows, np.arange(count + 1)).astype(np.int64)
    return Plan(starts, lengths, row_offsets)


@compiled_when_called
def _plan(offsets, order, length, shortest):  # type: ignore[no-untyped-def]
    most = 0
    for passage in order:
        most += 2 + (offsets[passage + 1] - offsets[passage]) // max(1, length - 2 - shortest)
    starts = np.empty(most, np.int64)
    lengths = np.empty(most, np.int32)
    rows = np.empty(most, np.int64)
    pieces, row, filled = 0, 0, 0
    for passage in order:
        position, end = offsets[passage], offsets[passage + 1]
        while position < end:
            room = length - filled - 2
            if filled > 0 and room < min(shortest, end - position):
                row, filled = row + 1, 0
                continue
            size = min(room, end - position)
            starts[pieces], lengths[pieces], rows[pieces] = position, size, row
            pieces, position, filled = pieces + 1, position + size, filled + size + 2
    return starts[:pieces].copy(), lengths[:pieces].copy(), rows[:pieces].copy()


def fill_rows(
    plan: Plan, rows: np.ndarray, tokens: np.ndarray, length: int, cls: int, sep: int, pad: int
) -> tuple[np.ndarray, ...]:
    """(ids, pieces, positions) of some rows, each (rows, length); piece 0 is padding."""
    grid = (len(rows), length)
    ids = np.full(grid, pad, np.int64)
    pieces = np.zeros(grid, np.int64)
    positions = np.zeros(grid, np.int64)
    _fill(
        plan.starts, plan.lengths, plan.row_offsets, rows, tokens, cls, sep, ids, pieces, positions
    )
    return ids, pieces, positions


@compiled_when_called
def _fill(starts, lengths, row_offsets, rows, tokens, cls, sep, ids, pieces, positions):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        column = 0
        first = row_offsets[rows[i]]
        for piece in range(first, row_offsets[rows[i] + 1]):
            start, size = starts[piece], lengths[piece]
            ids[i, column] = cls
            for j in range(size):
                ids[i, column + 1 + j] = tokens[start + j]
            ids[i, column + 1 + size] = sep
            for j in range(size + 2):
                pieces[i, column + j] = piece - first + 1
                positions[i, column + j] = j
            column += size + 2


@compiled_when_called
def first_fit(lengths, length, most):  # type: ignore[no-untyped-def]
    """The row of each piece: longest first, each into the first row that has room, at most `most`
    in a row.
    """
    order = np.argsort(-lengths, kind="mergesort")
    filled = np.zeros(len(lengths), np.int64)
    held = np.zeros(len(lengths), np.int64)
    where = np.zeros(len(lengths), np.int64)
    used = 0
    for piece in order:
        row = 0
        while row < used and (filled[row] + lengths[piece] > length or held[row] >= most):
            row += 1
        used = max(used, row + 1)
        filled[row] += lengths[piece]
        held[row] += 1
        where[piece] = row
    return where


@compiled_when_called
def tile_starts(pieces, most):  # type: ignore[no-untyped-def]
    """Where tiles of at most `most` tokens begin in the flattened batch (int32), then its end,
    repeated to one size.

    Neighbouring pieces of a row share a tile as long as they fit; two tiles that follow one another
    hold more than `most` tokens together, so that a row has at most 2 · length / most + 1 of them.
    Padding longer than a tile is cut.
    """
    rows, length = pieces.shape
    starts = np.full(rows * (2 * length // most + 1) + 1, rows * length, np.int32)
    tiles = 0
    for row in range(rows):
        tile, piece = 0, 0  # where they begin
        starts[tiles] = row * length
        tiles += 1
        for column in range(1, length + 1):
            if column < length and pieces[row, column] == pieces[row, column - 1]:
                continue
            if column - tile > most and piece > tile:
                tile = piece
                starts[tiles] = row * length + tile
                tiles += 1
            while column - tile > most:
                tile += most
                starts[tiles] = row * length + tile
                tiles += 1
            piece = column
    return starts
