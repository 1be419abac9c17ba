"""Near copies of texts: the sets of their runs of words, MinHash in bands to find the pairs that
may be alike, and the Jaccard similarity of whole sets to decide (Leskovec, Rajaraman and Ullman,
Mining of Massive Datasets, chapter 3).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.kernels import Ints, Keys, compiled, mix, run_hash

_HASHES = 128
_HALF = np.uint64(32)
_ALL_ONES = np.uint32(0xFFFFFFFF)


class MinHash:
    """Hash functions, 128 or a few less, in bands that pairs at a threshold share."""

    def __init__(self, threshold: float) -> None:
        self.bands, rows = bands_for(threshold)
        self.hashes = self.bands * rows
        draw = np.random.Generator(np.random.PCG64(0))
        self._multipliers = draw.integers(0, 1 << 32, self.hashes, np.uint32) | np.uint32(1)
        self._shifts = draw.integers(0, 1 << 32, self.hashes, np.uint32)

    def sign(self, runs: Keys, ends: Ints) -> tuple[NDArray[np.uint32], Keys]:
        """The MinHash values of each text [texts, hashes], and the keys of its bands [texts,
        bands]; the keys of a text without words are 0.
        """
        values = np.empty((ends.size, self.hashes), np.uint32)
        keys = np.empty((ends.size, self.bands), np.uint64)
        _sign(runs, ends, self._multipliers, self._shifts, values, keys)
        return values, keys


def bands_for(threshold: float) -> tuple[int, int]:
    """Returns (bands, rows per band): the widest bands that miss a pair at the threshold at most
    once in 1000 times.
    """
    rows = 1
    while rows < 8 and (1 - threshold ** (rows + 1)) ** (_HASHES // (rows + 1)) <= 0.001:
        rows += 1
    return _HASHES // rows, rows


def agreement_for(threshold: float, hashes: int) -> int:
    """In how many hashes a pair at the threshold agrees, but for one time in 10,000 when it is
    fewer (binomial).
    """
    below = 0.0
    for agreed in range(hashes + 1):
        below += (
            math.comb(hashes, agreed) * threshold**agreed * (1 - threshold) ** (hashes - agreed)
        )
        if below > 0.0001:
            return agreed
    return hashes


def runs_of_words(words: NDArray[np.int32] | Keys, ends: Ints, size: int) -> tuple[Keys, Ints]:
    """The sorted distinct hashes of each text's runs of `size` words (or its whole, if shorter),
    end to end, and where each text ends.

    Words are numbers or hashes, those of all texts end to end; `ends` says where each text ends.
    """
    runs, run_ends = np.empty(words.size, np.uint64), np.empty(ends.size, np.int64)
    filled = _fill_runs(words, ends, size, runs, run_ends)
    return runs[:filled], run_ends


@compiled
def _fill_runs(
    words: NDArray[np.int32] | Keys, ends: Ints, size: int, runs: Keys, run_ends: Ints
) -> int:
    """Fills what `runs_of_words` hands back; returns how many runs there are."""
    start = 0
    filled = 0
    for t in range(ends.size):
        length = min(size, ends[t] - start)
        count = ends[t] - start - length + 1 if length > 0 else 0
        values = np.empty(count, dtype=np.uint64)
        for i in range(count):
            values[i] = run_hash(words, start + i, length)
        values.sort()
        for i in range(count):
            if i == 0 or values[i] != values[i - 1]:
                runs[filled] = values[i]
                filled += 1
        run_ends[t] = filled
        start = ends[t]
    return filled


@compiled
def _sign(
    runs: Keys,
    ends: Ints,
    multipliers: NDArray[np.uint32],
    shifts: NDArray[np.uint32],
    values: NDArray[np.uint32],
    keys: Keys,
) -> None:
    """Fills the MinHash values of each text and the keys of its bands."""
    rows = multipliers.size // keys.shape[1]
    start = 0
    for text in range(ends.size):
        least = values[text]
        least[:] = _ALL_ONES
        for at in range(start, ends[text]):
            run = np.uint32(runs[at] >> _HALF)
            for one in range(multipliers.size):
                least[one] = min(least[one], np.uint32(run * multipliers[one] + shifts[one]))
        for band in range(keys.shape[1]):
            key = np.uint64(band)
            for one in range(band * rows, band * rows + rows):
                key = mix(key ^ np.uint64(least[one]))
            keys[text, band] = key if ends[text] > start else np.uint64(0)
        start = ends[text]


@compiled
def jaccard(left: Keys, right: Keys) -> float:
    """The similarity of two sorted sets: what they share of what they hold together."""
    i = j = shared = 0
    while i < left.size and j < right.size:
        shared += left[i] == right[j]
        lower = left[i]
        i += left[i] <= right[j]
        j += right[j] <= lower
    return shared / max(left.size + right.size - shared, 1)


@compiled
def jaccards(runs: Keys, ends: Ints, left: Ints, right: Ints, scores: NDArray[np.float64]) -> None:
    """Fills the Jaccard similarity of each pair of texts, from their sorted distinct hashes."""
    for pair in range(left.size):
        one, other = left[pair], right[pair]
        start = ends[one - 1] if one > 0 else 0
        other_start = ends[other - 1] if other > 0 else 0
        scores[pair] = jaccard(runs[start : ends[one]], runs[other_start : ends[other]])
