"""Exact and near duplicates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.words import folded, words

SHORT_WORDS = 30  # texts with fewer words are compared by runs of 3 words, others by runs of 5
# in a fuller bucket each text is compared with the bucket's first texts only, so that work stays
# linear
_BUCKET = 100
Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]


def text_key(text: str) -> int:
    """The 64-bit hash of the text without differences of form (NFKC), case and spacing; never 0."""
    normal = " ".join(folded(text).split())
    return (
        int.from_bytes(
            hashlib.blake2b(normal.encode("utf-8", "replace"), digest_size=8).digest(), "big"
        )
        or 1
    )


def near_duplicates(texts: Sequence[str], threshold: float = 0.8) -> list[tuple[int, int, float]]:
    """The pairs (i < j, Jaccard similarity) of texts whose sets of word runs are at least
    `threshold` alike.

    Candidates come from MinHash LSH (a pair at the threshold is missed about once in a thousand),
    their similarity is then computed from the whole sets. Runs have 5 words, or 3 where one text of
    the pair is short.
    """
    # imported here so that hashing texts does not wait for Numba
    from tasklm.corpus.minhash import MinHash, jaccards, runs_of_words

    ids, ends = _numbered(texts)
    threes, three_ends = runs_of_words(ids, ends, 3)
    _, keys = MinHash(threshold).sign(threes, three_ends)
    left, right = _candidates(keys)
    if not left.size:
        return []
    scores = np.empty(left.size)
    jaccards(threes, three_ends, left, right, scores)
    lengths = np.diff(ends, prepend=0)
    both_long = np.minimum(lengths[left], lengths[right]) >= SHORT_WORDS
    if both_long.any():
        fives, five_ends = runs_of_words(ids, ends, 5)
        long_scores = np.empty(int(both_long.sum()))
        jaccards(fives, five_ends, left[both_long], right[both_long], long_scores)
        scores[both_long] = long_scores
    alike = np.flatnonzero(scores >= threshold)
    return [(int(left[p]), int(right[p]), float(scores[p])) for p in alike]


def _numbered(texts: Sequence[str]) -> tuple[NDArray[np.int32], Ints]:
    """The words of all texts as numbers in order of first use, and where each text ends."""
    numbers: dict[str, int] = {}
    ends = np.empty(len(texts), dtype=np.int64)
    parts = [np.empty(0, dtype=np.int32)]
    total = 0
    for t, text in enumerate(texts):
        own = words(text)
        ids = [numbers.setdefault(word, len(numbers) + 1) for word in own]
        parts.append(np.array(ids, dtype=np.int32))
        total += len(own)
        ends[t] = total
    return np.concatenate(parts), ends


def _candidates(keys: Keys) -> tuple[Ints, Ints]:
    """The pairs that share a band, each once, in order; `keys` holds those of each text's bands."""
    count, bands = keys.shape
    codes = [np.empty(0, dtype=np.int64)]
    for band in range(bands):
        codes.append(_bucket_pairs(keys[:, band]))
        if sum(part.size for part in codes) > 1 << 22:
            # many bands find the same pairs: keep memory small
            codes = [np.unique(np.concatenate(codes))]
    pairs = np.unique(np.concatenate(codes))
    return pairs // count, pairs % count


def _bucket_pairs(keys: Keys) -> Ints:
    """Returns i * n + j for texts i < j with equal non-zero keys."""
    order = np.argsort(keys, kind="stable").astype(np.int64)
    ordered = keys[order]
    differs = np.ones(keys.size, np.bool_)
    differs[1:] = ordered[1:] != ordered[:-1]
    bounds = np.flatnonzero(differs)
    sizes = np.diff(np.append(bounds, keys.size))
    codes = [np.empty(0, dtype=np.int64)]
    for bound, size in zip(bounds[sizes > 1], sizes[sizes > 1], strict=True):
        if ordered[bound] == 0:
            continue
        members = order[bound : bound + size]  # rising, since the sort is stable
        for first in range(min(int(size) - 1, _BUCKET)):
            codes.append(members[first] * keys.size + members[first + 1 :])
    return np.concatenate(codes)
