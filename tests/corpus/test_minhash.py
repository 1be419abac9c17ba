"""MinHash against the sets that it stands for."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from scipy.stats import binom

from tasklm.corpus.minhash import (
    MinHash,
    agreement_for,
    bands_for,
    jaccard,
    jaccards,
    runs_of_words,
)


def lists_with_copies(count: int) -> list[list[int]]:
    """Lists of word numbers of which half are others with some words changed."""
    random = np.random.default_rng(8)
    lists: list[list[int]] = []
    for number in range(count):
        own = random.integers(1, 300, size=int(random.integers(0, 80))).tolist()
        if number % 2:
            own = list(lists[int(random.integers(0, number))])
            for place in random.integers(0, max(len(own), 1), size=len(own) // 6):
                own[place] = int(random.integers(300, 1000))
        lists.append(own)
    return lists


def runs(words: list[int], size: int) -> set[tuple[int, ...]]:
    length = min(size, len(words))
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1) if length}


def hashed(lists: list[list[int]], size: int = 3) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(own) for own in lists])
    return runs_of_words(np.array(list(chain.from_iterable(lists)), np.int32), ends, size)


def similarity(left: set[tuple[int, ...]], right: set[tuple[int, ...]]) -> float:
    return len(left & right) / max(len(left | right), 1)


@pytest.mark.parametrize("size", [3, 5])
def test_similarities_are_those_of_the_sets(size: int) -> None:
    lists = lists_with_copies(100)
    sets = [runs(own, size) for own in lists]
    hashes, ends = hashed(lists, size)
    assert np.diff(ends, prepend=0).tolist() == [len(own) for own in sets]
    left, right = np.triu_indices(100, 1)
    scores = np.empty(left.size)
    jaccards(hashes, ends, left, right, scores)
    exact = [similarity(sets[a], sets[b]) for a, b in zip(left, right, strict=True)]
    assert scores.tolist() == exact and sum(score > 0.3 for score in exact) > 10
    starts = np.append(0, ends)
    parts = [hashes[starts[t] : starts[t + 1]] for t in range(100)]
    assert [jaccard(parts[a], parts[b]) for a, b in zip(left, right, strict=True)] == exact


def test_hashes_agree_as_often_as_sets_do() -> None:
    lists = lists_with_copies(400)
    minhash = MinHash(0.9)
    values, _ = minhash.sign(*hashed(lists))
    sets = [runs(own, 3) for own in lists]
    pairs = [(a, b) for a in range(400) for b in range(a) if sets[a] & sets[b]]
    exact = np.array([similarity(sets[a], sets[b]) for a, b in pairs])
    estimated = np.array([(values[a] == values[b]).mean() for a, b in pairs])
    spread = np.sqrt(exact * (1 - exact) / minhash.hashes)
    assert (exact > 0.3).sum() > 50
    assert abs((estimated - exact)[exact > 0.3].mean()) < 0.01
    assert (abs(estimated - exact) < 6 * spread + 0.02).all()


def test_equal_texts_share_all_bands_and_texts_without_words_have_none() -> None:
    minhash = MinHash(0.8)
    values, keys = minhash.sign(*hashed([[1, 2, 3, 4], [], [1, 2, 3, 4], [5, 6, 7, 8]]))
    assert values.shape == (4, minhash.hashes) and keys.shape == (4, minhash.bands)
    assert (keys[0] == keys[2]).all() and keys[[0, 2, 3]].all()
    assert not (keys[0] == keys[3]).any() and not keys[1].any()


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8, 0.9, 0.999, 1.0])
def test_few_pairs_at_the_threshold_are_missed(threshold: float) -> None:
    bands, rows = bands_for(threshold)
    hashes = bands * rows
    assert (1 - threshold**rows) ** bands <= 0.001 and 64 <= hashes <= 128
    needed = agreement_for(threshold, hashes)
    assert binom.cdf(needed - 1, hashes, threshold) <= 0.0001 < binom.cdf(needed, hashes, threshold)
