"""The compiled loops that choose and order the best, against plain sorting."""

from __future__ import annotations

import numpy as np
import pytest

from tasklm.select.lexical.best_keys import drop_low, unpack
from tasklm.select.lexical.candidates import numbers_of, sums_of


def keys_of(sums, numbers):
    return (np.asarray(sums, np.uint64) << np.uint64(32)) | (
        np.uint64(0xFFFFFFFF) - np.asarray(numbers, np.uint64)
    )


SUMS = {
    "spread out": lambda random: random.exponential(1e7, 700).astype(np.int64),
    "one far above": lambda random: np.append(random.integers(5, 90, 699), 1 << 30),
    "few different": lambda random: random.integers(5, 8, 700),
    "all the same": lambda random: np.full(700, 77),
}


@pytest.mark.parametrize("best", [1, 66, 350, 699])
@pytest.mark.parametrize("kind", SUMS)
def test_dropping_keeps_the_best(kind, best):
    random = np.random.default_rng(3)
    keys = keys_of(SUMS[kind](random), random.permutation(700))
    before = np.sort(keys)[::-1].copy()
    left, floor = drop_low(keys, len(keys), best)
    kept = np.sort(keys[:left])[::-1]
    assert best <= left <= best + (700 - best) // 8
    np.testing.assert_array_equal(kept, before[:left])
    assert 0 <= floor <= sums_of(kept)[best - 1]
    if left < 700 and sums_of(kept)[-1] > sums_of(before)[left]:
        assert floor > sums_of(before)[left]


def test_a_floor_is_near_the_last_of_the_best():
    sums = np.random.default_rng(4).exponential(1e7, 10_000).astype(np.int64)
    keys = keys_of(sums, np.arange(10_000))
    left, floor = drop_low(keys, len(keys), 5_000)
    assert left < 5_100
    assert floor == pytest.approx(np.median(sums), rel=0.02)


def test_unpacked_keys_are_ordered_by_score_in_single_precision_then_by_number():
    random = np.random.default_rng(5)
    counts = np.array([40, 0, 25], np.int64)
    scales = np.array([2.0**20, 1.0, 2.0**24])
    sums = (1 << 29) + random.integers(0, 200, (3, 40))
    numbers = np.array([random.permutation(90)[:40] for _ in range(3)])
    keys = np.sort(keys_of(sums, numbers), axis=1)[:, ::-1].copy()
    found, scores = np.empty(65, np.int64), np.empty(65, np.float32)
    unpack(keys, counts, scales, found, scores)
    rows = [(keys[0], scales[0], slice(0, 40)), (keys[2, :25], scales[2], slice(40, 65))]
    for row, scale, here in rows:
        wanted = (sums_of(row) / scale).astype(np.float32)
        assert len(np.unique(wanted)) < len(
            np.unique(sums_of(row))
        )  # single precision makes ties of its own
        order = np.lexsort((numbers_of(row), -wanted))
        np.testing.assert_array_equal(found[here], numbers_of(row)[order])
        np.testing.assert_array_equal(scores[here], wanted[order])
