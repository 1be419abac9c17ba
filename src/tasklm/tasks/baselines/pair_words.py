"""Features of pairs of texts for linear models: words in both and in one, similarities."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasklm.corpus.words import words
from tasklm.tasks.base import Floats

RAMPS = 5  # columns of a similarity: the first rises from 0 to 0.2, the next from 0.2 to 0.4 …
MOST_CROSSED = (
    25  # pairs of words in which two texts differ; with more, the texts have little in common
)


def bigrams(tokens: Sequence[str]) -> list[str]:
    """The pairs of neighbouring tokens."""
    return [f"{one} {other}" for one, other in itertools.pairwise(tokens)]


def shared_words(texts: tuple[str, str]) -> list[str]:
    """The words of a pair of texts by where they occur: in both, or only in the first or second. If
    the texts differ in few words, also which word of one corresponds to which of the other.
    """
    one, other = (set(words(text)) for text in texts)
    first, second = sorted(one - other), sorted(other - one)
    tokens = [f"both={word}" for word in sorted(one & other)]
    tokens += [f"first={word}" for word in first] + [f"second={word}" for word in second]
    tokens += [f"either={word}" for word in (*first, *second)]
    if len(first) * len(second) <= MOST_CROSSED:
        for word in first:
            tokens += [f"{word} against {against}" for against in second]
    return tokens


def similarities(
    one: Sequence[str], other: Sequence[str], idf: Mapping[str, float], cosines: Sequence[Floats]
) -> Any:
    """The similarities of pairs of texts: a sparse matrix with RAMPS columns per similarity.

    `idf` has inverse document frequencies of words, of which unknown ones have the highest;
    `cosines` are further similarities between 0 and 1.
    """
    from scipy.sparse import csr_matrix

    values = np.stack([*cosines, *_overlaps(one, other, idf)], axis=1)
    ramps = np.clip(values[:, :, None] * RAMPS - np.arange(RAMPS), 0.0, 1.0)
    return csr_matrix(ramps.reshape(len(values), values.shape[1] * RAMPS))


def _overlaps(one: Sequence[str], other: Sequence[str], idf: Mapping[str, float]) -> list[Floats]:
    """Shares of words, word pairs and numbers that both texts have, and the ratio of lengths."""
    sides = [[words(text) for text in side] for side in (one, other)]
    length, other_length = (np.array([*map(len, side)], np.float64) for side in sides)
    in_words, types = _present(sides)
    in_pairs, pairs = _present([[bigrams(tokens) for tokens in side] for side in sides])
    top = max(idf.values(), default=1.0)
    shares = []
    for weights in (np.ones(len(types)), np.array([idf.get(word, top) for word in types])):
        both, first, second = _sizes(in_words, weights)
        shares += [_share(both, first + second - both), _share(both, first), _share(both, second)]
    both, first, second = _sizes(in_pairs, np.ones(len(pairs)))
    shares.append(_share(both, first + second - both))
    digits = [any(character.isdigit() for character in word) for word in types]
    both, first, second = _sizes(in_words, np.array(digits, np.float64))
    shares.append(np.where(first + second > 0, _share(both, first + second - both), 1.0))
    shares.append(_share(np.minimum(length, other_length), np.maximum(length, other_length)))
    return shares


def _present(sides: Sequence[Sequence[Sequence[str]]]) -> tuple[list[Any], list[str]]:
    """Which tokens the texts of either side have, in matrices of 0 and 1, and the tokens."""
    from scipy.sparse import csr_matrix

    flat = itertools.chain.from_iterable(itertools.chain.from_iterable(sides))
    number = {token: column for column, token in enumerate(dict.fromkeys(flat))}
    matrices = []
    for side in sides:
        rows = [sorted({number[token] for token in tokens}) for tokens in side]
        columns = np.array(list(itertools.chain.from_iterable(rows)), np.int64)
        ends = np.cumsum([0, *map(len, rows)])
        shape = (len(rows), len(number))
        matrices.append(csr_matrix((np.ones(len(columns)), columns, ends), shape=shape))
    return matrices, list(number)


def _sizes(sides: Sequence[Any], weight: Floats) -> tuple[Floats, Floats, Floats]:
    """The weight of the tokens in both texts, in the first and in the second."""
    one, other = sides
    return one.multiply(other) @ weight, one @ weight, other @ weight


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
