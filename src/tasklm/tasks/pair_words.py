"""What two texts have in common, for linear models: the words in both and in one of them, and how alike they are in numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.words import words

RAMPS = 5  # columns of a similarity: the first rises from 0 to 0.2, the next from 0.2 to 0.4 …
MOST_CROSSED = 25  # pairs of words in which two texts differ; texts with more of them have little in common anyway


def bigrams(tokens: Sequence[str]) -> list[str]:
    """The pairs of neighbouring tokens."""
    return [f"{one} {other}" for one, other in itertools.pairwise(tokens)]


def shared_words(texts: tuple[str, str]) -> list[str]:
    """The words of a pair of texts by where they stand: in both, in the first or the second alone, in one alone.

    Where the texts differ in few words, also which word of the one stands against which of the other.
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


def similarities(one: Sequence[str], other: Sequence[str], weights: Mapping[str, float], cosines: Sequence[NDArray[np.float64]]) -> Any:
    """How alike texts are, two by two: a sparse matrix with RAMPS columns for each similarity between 0 and 1.

    `weights` are inverse document frequencies of words, of which unknown ones have the highest; `cosines` are further similarities.
    """
    from scipy.sparse import csr_matrix

    values = np.stack([*cosines, *_overlaps(one, other, weights)], axis=1) if len(one) else np.zeros((0, len(cosines) + 9))
    ramps = np.clip(values[:, :, None] * RAMPS - np.arange(RAMPS), 0.0, 1.0)
    return csr_matrix(ramps.reshape(len(values), -1))


def _overlaps(one: Sequence[str], other: Sequence[str], weights: Mapping[str, float]) -> list[NDArray[np.float64]]:
    """Shares of words, of word pairs and of numbers that both texts have, and the ratio of their lengths: nine similarities."""
    listed = [[words(text) for text in side] for side in (one, other)]
    lengths = [np.array([len(tokens) for tokens in side], np.float64) for side in listed]
    sides, types = _present(listed)
    pairs, _ = _present([[bigrams(tokens) for tokens in side] for side in listed])
    top = max(weights.values(), default=1.0)
    idf = np.array([weights.get(word, top) for word in types])
    digits = np.array([any(character.isdigit() for character in word) for word in types], np.float64)
    found = []
    for weight in (np.ones(len(types)), idf):
        both, first, second = _sizes(sides, weight)
        found += [_share(both, first + second - both), _share(both, first), _share(both, second)]
    both, first, second = _sizes(pairs, np.ones(pairs[0].shape[1]))
    found.append(_share(both, first + second - both))
    both, first, second = _sizes(sides, digits)
    found.append(np.where(first + second > 0, _share(both, first + second - both), 1.0))
    found.append(_share(np.minimum(*lengths), np.maximum(*lengths)))
    return found


def _present(listed: Sequence[Sequence[Sequence[str]]]) -> tuple[list[Any], list[str]]:
    """Which tokens the texts of either side have, as matrices of 0 and 1, and the tokens of their columns."""
    from scipy.sparse import csr_matrix

    number: dict[str, int] = {}
    matrices = []
    for side in listed:
        columns = [sorted({number.setdefault(token, len(number)) for token in tokens}) for tokens in side]
        ends = np.cumsum([0, *map(len, columns)])
        flat = np.array([column for row in columns for column in row], np.int64)
        matrices.append((np.ones(len(flat)), flat, ends))
    return [csr_matrix(parts, shape=(len(side), len(number))) for parts, side in zip(matrices, listed, strict=True)], list(number)


def _sizes(sides: Sequence[Any], weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The weight of the tokens in both texts, in the first and in the second."""
    one, other = sides
    return one.multiply(other) @ weight, one @ weight, other @ weight


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
