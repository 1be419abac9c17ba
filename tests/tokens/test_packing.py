from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.tokens.packing import SHORTEST, fill_rows, plan_rows

CLS, SEP, PAD = 1, 2, 0


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 90), min_size=1, max_size=40), length=st.integers(16, 40), seed=st.integers(0, 5))
def test_every_token_is_packed_exactly_once_and_in_order(lengths: list[int], length: int, seed: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = np.arange(10, 10 + offsets[-1], dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(lengths))
    plan = plan_rows(offsets, order, length)
    ids, pieces, positions = fill_rows(plan, np.arange(len(plan)), tokens, length, CLS, SEP, PAD)
    wanted = np.concatenate([tokens[offsets[i] : offsets[i + 1]] for i in order]) if offsets[-1] else np.zeros(0, np.int64)
    assert np.array_equal(ids[ids >= 10], wanted)
    for row in range(len(plan)):
        for piece in range(1, pieces[row].max() + 1):
            inside = np.flatnonzero(pieces[row] == piece)
            assert np.array_equal(inside, np.arange(inside[0], inside[-1] + 1))  # one run
            assert ids[row, inside[0]] == CLS and ids[row, inside[-1]] == SEP
            assert np.array_equal(positions[row, inside], np.arange(len(inside)))
            numbers = ids[row, inside[1:-1]]
            assert len(np.unique(np.searchsorted(offsets, numbers - 10, side="right"))) == 1  # of one passage
    assert (ids[pieces == 0] == PAD).all()


def test_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(30, 300, 2000)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    plan = plan_rows(offsets, np.arange(2000), 128)
    used = plan.lengths.sum() + 2 * len(plan.lengths)
    assert used / (len(plan) * 128) > 1 - (SHORTEST + 2) / 128
