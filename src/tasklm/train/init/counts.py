"""Token embeddings from counts of neighbours, for the beginning of stage 1 (`train.embeddings`).

Positive pointwise mutual information of tokens within a few places, nearer ones counting more,
contexts smoothed, and its truncated singular value decomposition, as in *Improving Distributional
Similarity with Lessons Learned from Word Embeddings* (Levy, Goldberg and Dagan, TACL 2015). The
decomposition is the randomised one of *Finding structure with randomness* (arXiv 0909.4061), by
hand: `torch.svd_lowrank` takes 2.5 to 5.6 times as long for the same (benchmarks/log.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from tasklm.tokens.shards import Shards

WINDOW = 4  # tokens to either side that count as near; one at distance d counts 1/d
SMOOTHING = 0.75  # power of the frequency of contexts: rare ones would stand out by chance
# power of the singular values: between all directions alike (0) and the frequent ones alone (1)
POWER = 0.5
MORE = 16  # directions computed in addition to the wanted ones …
ROUNDS = 3  # … and rounds of sharpening them
MOST_TOKENS = 32_000_000  # of longer text evenly spaced passages are counted
BLOCK_BYTES = 1 << 28  # memory of the rows of the table that are counted at a time


@dataclass(frozen=True)
class Associations:
    """The positive associations of token types, by rows; types that are left out have none."""

    starts: np.ndarray  # int64[types + 1]: where rows begin
    columns: np.ndarray  # int32
    values: np.ndarray  # float32

    @property
    def seen(self) -> np.ndarray:
        """Which types have any (bool)."""
        return np.diff(self.starts) > 0


def sampled(
    text: Shards, most: int = MOST_TOKENS, left_out: np.ndarray | Sequence[int] = ()
) -> Shards:
    """The text, or evenly spaced passages of it that have about `most` tokens together; without
    those that are left out.
    """
    passages = sampled_passages(text, most, left_out)
    if len(passages) == len(text):
        return text
    pieces = [text.tokens[text.offsets[number] : text.offsets[number + 1]] for number in passages]
    return Shards(np.concatenate(pieces), np.cumsum([0, *map(len, pieces)]))


def sampled_passages(
    text: Shards, most: int = MOST_TOKENS, left_out: np.ndarray | Sequence[int] = ()
) -> np.ndarray:
    """The numbers of the passages in a sample of a text."""
    total = int(text.offsets[-1])
    count = len(text)
    if total > most:
        count = max(1, min(len(text), int(len(text) * most / total)))
    passages = np.unique(np.linspace(0, len(text) - 1, count).astype(np.int64))
    return passages[~np.isin(passages, left_out)]


def frequencies(texts: Sequence[Shards], types: int, left_out: Sequence[int]) -> np.ndarray:
    """How often each token type occurs (float64), 0 for those that are left out."""
    counts = np.zeros(types)
    for text in texts:
        counts += np.bincount(text.tokens, minlength=types)
    counts[list(left_out)] = 0.0
    return counts


def associations(
    texts: Sequence[Shards], types: int, left_out: Sequence[int], window: int = WINDOW
) -> Associations:
    """The positive pointwise mutual information of tokens near one another in the same passage."""
    counted = np.ones(types, np.bool_)
    counted[list(left_out)] = False
    near = np.zeros(types)
    for text in texts:
        _sums(text.tokens, text.offsets, window, counted, near)
    contexts = near**SMOOTHING
    with np.errstate(divide="ignore"):  # what never occurs is never looked up
        row_terms, column_terms = np.log(near), np.log(contexts / max(contexts.sum(), 1e-300))
    rows = max(1, min(types, BLOCK_BYTES // (4 * types)))
    block = np.empty((rows, types), np.float32)
    sizes: list[np.ndarray] = [np.zeros(1, np.int64)]
    columns: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for first in range(0, types, rows):
        part = block[: min(rows, types - first)]
        part[:] = 0.0
        for text in texts:
            _count(text.tokens, text.offsets, window, counted, first, part)
        positive = _positive(part, row_terms[first : first + rows], column_terms)
        for collected, array in zip((sizes, columns, values), positive, strict=True):
            collected.append(array)
    return Associations(
        np.cumsum(np.concatenate(sizes)), np.concatenate(columns), np.concatenate(values)
    )


def embeddings(pairs: Associations, width: int) -> np.ndarray:
    """Left singular vectors times the root of their singular values (types, at most `width`).

    The largest come first.
    """
    types = len(pairs.starts) - 1
    draws = np.random.default_rng(0).standard_normal((types, min(types, width + MORE)), np.float32)
    basis = np.ascontiguousarray(np.linalg.qr(draws)[0])
    for _ in range(ROUNDS):
        product = _there_and_back(pairs.starts, pairs.columns, pairs.values, basis)
        basis = np.ascontiguousarray(np.linalg.qr(product)[0])
    product = _there(pairs.starts, pairs.columns, pairs.values, basis)
    left, sizes, _ = np.linalg.svd(product, full_matrices=False)
    table: np.ndarray = left[:, :width] * sizes[:width] ** POWER
    return table.astype(np.float32)


@njit(cache=True, nogil=True)
def _sums(tokens, offsets, window, counted, near):  # type: ignore[no-untyped-def]
    """Adds up, for each type, the weights of all pairs that it is part of."""
    for passage in range(len(offsets) - 1):
        end = offsets[passage + 1]
        for place in range(offsets[passage], end):
            if counted[tokens[place]]:
                for other in range(place + 1, min(place + window + 1, end)):
                    if counted[tokens[other]]:
                        near[tokens[place]] += 1.0 / (other - place)
                        near[tokens[other]] += 1.0 / (other - place)


@njit(cache=True, nogil=True)
def _count(tokens, offsets, window, counted, first, block):  # type: ignore[no-untyped-def]
    """Adds the weights of the pairs whose first type is a row of the block, which begins with type
    `first`.
    """
    for passage in range(len(offsets) - 1):
        begin, end = offsets[passage], offsets[passage + 1]
        for place in range(begin, end):
            row = np.int64(tokens[place]) - first
            if 0 <= row < len(block) and counted[tokens[place]]:
                for other in range(max(begin, place - window), min(place + window + 1, end)):
                    if other != place and counted[tokens[other]]:
                        block[row, tokens[other]] += np.float32(1.0 / abs(other - place))


@njit(cache=True, nogil=True)
def _positive(block, row_terms, column_terms):  # type: ignore[no-untyped-def]
    """Turns weights into mutual information in place; returns sizes, columns and values of what is
    positive of each row.
    """
    sizes = np.zeros(len(block), np.int64)
    for row in range(len(block)):
        for column in range(block.shape[1]):
            if block[row, column] > 0.0:
                block[row, column] = max(
                    0.0, np.log(block[row, column]) - row_terms[row] - column_terms[column]
                )
                sizes[row] += block[row, column] > 0.0
    columns, values, filled = np.empty(sizes.sum(), np.int32), np.empty(sizes.sum(), np.float32), 0
    for row in range(len(block)):
        for column in range(block.shape[1]):
            if block[row, column] > 0.0:
                columns[filled], values[filled], filled = column, block[row, column], filled + 1
    return sizes, columns, values


@njit(cache=True, nogil=True)
def _there(starts, columns, values, vectors):  # type: ignore[no-untyped-def]
    """The product of the associations and vectors (types, any)."""
    out = np.zeros((len(starts) - 1, vectors.shape[1]), np.float32)
    for row in range(len(out)):
        for place in range(starts[row], starts[row + 1]):
            value, other = values[place], columns[place]
            for number in range(vectors.shape[1]):
                out[row, number] += value * vectors[other, number]
    return out


@njit(cache=True, nogil=True)
def _there_and_back(starts, columns, values, vectors):  # type: ignore[no-untyped-def]
    """The product of the transposed associations, the associations and vectors, in one pass over
    the rows.
    """
    out = np.zeros(vectors.shape, np.float32)
    mixed = np.empty(vectors.shape[1], np.float32)
    for row in range(len(out)):
        mixed[:] = 0.0
        for place in range(starts[row], starts[row + 1]):
            value, other = values[place], columns[place]
            for number in range(len(mixed)):
                mixed[number] += value * vectors[other, number]
        for place in range(starts[row], starts[row + 1]):
            value, other = values[place], columns[place]
            for number in range(len(mixed)):
                out[other, number] += value * mixed[number]
    return out
