from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.tokens.packing import SHORTEST, fill_rows, first_fit, plan_rows, tile_starts

CLS, SEP, PAD = 1, 2, 0


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=40),
    length=st.integers(16, 40),
    seed=st.integers(0, 5),
)
def test_every_token_is_packed_exactly_once_and_in_order(
    lengths: list[int], length: int, seed: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = np.arange(10, 10 + offsets[-1], dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(lengths))
    plan = plan_rows(offsets, order, length)
    ids, pieces, positions = fill_rows(plan, np.arange(len(plan)), tokens, length, CLS, SEP, PAD)
    wanted = (
        np.concatenate([tokens[offsets[i] : offsets[i + 1]] for i in order])
        if offsets[-1]
        else np.zeros(0, np.int64)
    )
    assert np.array_equal(ids[ids >= 10], wanted)
    for row in range(len(plan)):
        for piece in range(1, pieces[row].max() + 1):
            inside = np.flatnonzero(pieces[row] == piece)
            assert np.array_equal(inside, np.arange(inside[0], inside[-1] + 1))  # one run
            assert ids[row, inside[0]] == CLS and ids[row, inside[-1]] == SEP
            assert np.array_equal(positions[row, inside], np.arange(len(inside)))
            numbers = ids[row, inside[1:-1]]
            assert (
                len(np.unique(np.searchsorted(offsets, numbers - 10, side="right"))) == 1
            )  # of one passage
    assert (ids[pieces == 0] == PAD).all()


def test_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(30, 300, 2000)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    plan = plan_rows(offsets, np.arange(2000), 128)
    used = plan.lengths.sum() + 2 * len(plan.lengths)
    assert used / (len(plan) * 128) > 1 - (SHORTEST + 2) / 128


def placed_by_hand(lengths: list[int], length: int, most: int) -> list[int]:
    """First fit, longest first (equal lengths in their order), in plain Python."""
    rows: list[list[int]] = []
    where = [0] * len(lengths)
    for piece in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        fitting = [
            number
            for number, row in enumerate(rows)
            if sum(row) + lengths[piece] <= length and len(row) < most
        ]
        if not fitting:
            rows.append([])
        where[piece] = fitting[0] if fitting else len(rows) - 1
        rows[where[piece]].append(lengths[piece])
    return where


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    length=st.integers(40, 64),
    most=st.integers(1, 6),
)
def test_first_fit_is_the_textbooks(lengths: list[int], length: int, most: int) -> None:
    where = first_fit(np.array(lengths, np.int64), length, most)
    assert where.tolist() == placed_by_hand(lengths, length, most)
    sums, counts = np.bincount(where, lengths), np.bincount(where)
    assert sums.max() <= length and counts.max() <= most and counts.min() >= 1


def test_first_fit_by_hand() -> None:
    # 7 → row 0; 5 → 1; 5 → 1; 3 → 0; 2 → 2; with one piece a row, all apart
    lengths = np.array([5, 3, 7, 2, 5], np.int64)
    assert first_fit(lengths, 10, 16).tolist() == [1, 0, 0, 2, 1]
    assert first_fit(lengths, 10, 1).tolist() == [1, 3, 0, 4, 2]


def test_rows_are_filled_by_hand() -> None:
    # passages of 3, 20 and 2 tokens in rows of 16: 3 + 2 marks, then 9 of the 20 + 2 marks; 11 + 2
    # marks, and 1 place is too few
    offsets, tokens = np.array([0, 3, 23, 25]), np.arange(10, 35)
    plan = plan_rows(offsets, np.arange(3), 16)
    ids, pieces, positions = fill_rows(plan, np.arange(len(plan)), tokens, 16, CLS, SEP, PAD)
    assert ids.tolist() == [
        [CLS, 10, 11, 12, SEP, CLS, *range(13, 22), SEP],
        [CLS, *range(22, 33), SEP, PAD, PAD, PAD],
        [CLS, 33, 34, SEP, *[PAD] * 12],
    ]
    assert pieces.tolist() == [[1] * 5 + [2] * 11, [1] * 13 + [0] * 3, [1] * 4 + [0] * 12]
    assert positions.tolist() == [
        [*range(5), *range(11)],
        [*range(13), 0, 0, 0],
        [*range(4), *[0] * 12],
    ]
    again = fill_rows(
        plan, np.array([2, 0]), tokens, 16, CLS, SEP, PAD
    )  # some rows, in another order
    assert np.array_equal(again[0], ids[[2, 0]]) and np.array_equal(again[1], pieces[[2, 0]])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=1, max_size=4), st.integers(9, 16)
)
def test_tiles_hold_whole_pieces_and_all_tokens(sizes: list[list[int]], most: int) -> None:
    length = max(1, *(sum(row) for row in sizes)) + 3
    pieces = np.zeros((len(sizes), length), np.int64)
    for row, lengths in enumerate(sizes):
        pieces[row, : sum(lengths)] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    starts = tile_starts(pieces, most)
    assert (
        starts[0] == 0
        and starts[-1] == pieces.size
        and len(starts) == len(sizes) * (2 * length // most + 1) + 1
    )
    counts = np.diff(starts)
    assert counts.min() >= 0 and counts.max() <= most
    for start in starts[
        starts < pieces.size
    ].tolist():  # at the head of a row, of a piece, or inside padding
        row, column = divmod(start, length)
        assert (
            column == 0
            or pieces[row, column] != pieces[row, column - 1]
            or pieces[row, column] == 0
        )
    rows = starts[:-1][counts > 0] // length
    assert ((starts[1:][counts > 0] - 1) // length == rows).all()  # no tile is part of two rows
