"""BM25 over blocks that are apart from one another: statistics and candidates of each, and how they are merged.

statistics(block) → added up → candidates(block) → the best k of all. Blocks may be scored anywhere and in any grouping; the
result is, bit for bit, that of a search over all blocks at one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.corpus.words import words
from tasklm.select.base import Ranking
from tasklm.select.bm25_index import Block, hash_terms
from tasklm.select.bm25_kernels import ANY_BYTE, LETTERS, SEPARATOR, drain, impacts, invert, keep_best, score_block, split
from tasklm.select.bm25_search import Scoring


@dataclass
class Statistics:
    """What BM25 must know of all passages: how many, how long, and in how many of them each term occurs."""

    passages: int
    words: int
    terms: npt.NDArray[np.uint64]  # ascending hashes
    frequency: npt.NDArray[np.int64]

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(self.passages + other.passages, self.words + other.words, self.terms, self.frequency + other.frequency)

    @property
    def average_length(self) -> float:
        """Returns the mean length of a passage in words, at least a little above nothing."""
        return max(self.words, 1) / max(self.passages, 1)


@dataclass
class PreparedQueries:
    """Queries as rows of (term, weight), terms by ascending hash so that sums do not depend on the batch."""

    terms: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]
    term_of: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass
class Candidates:
    """For each query, in any order, the keys of the best passages: the bits of the score above the reversed number."""

    offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, first: int, last: int) -> Candidates:
        """Returns the candidates of queries first…last."""
        offsets = self.offsets[first : last + 1]
        return Candidates(offsets - offsets[0], self.keys[offsets[0] : offsets[-1]])


def block_of(texts: Iterable[str], start: int) -> Block:
    """Returns the postings of some consecutive passages, 65,536 at most, the first of which has the number `start`."""
    text, bounds, split_already = bytearray(), [0], []
    for passage in texts:
        ready = passage.isascii()
        text += passage.encode("ascii") if ready else SEPARATOR.join(words(passage)).encode("utf-8", "surrogatepass")
        bounds.append(len(text))
        split_already.append(not ready)
    plain = np.frombuffer(bytes(text), np.uint8)
    hashes, numbers, word_bounds = split(plain, np.array(bounds, np.int64), np.array(split_already, np.bool_), LETTERS, ANY_BYTE)
    terms, offsets, passages, tf = invert(hashes, numbers, word_bounds)
    widest = int(tf.max()) if len(tf) else 0
    narrow = np.uint8 if widest < 1 << 8 else np.uint16 if widest < 1 << 16 else np.uint32
    lengths = np.diff(word_bounds).astype(np.uint32)
    return Block(Path(), start, start + len(split_already), terms, offsets, passages, tf.astype(narrow), lengths)


def unique_terms(queries: Iterable[Sequence[str]]) -> npt.NDArray[np.uint64]:
    """Returns the hashes of all terms of the queries, ascending, each once."""
    found = sorted({term for query in queries for term in query})
    return np.unique(hash_terms(found)) if found else np.empty(0, np.uint64)


def statistics_of(block: Block, terms: npt.NDArray[np.uint64]) -> Statistics:
    """Returns the statistics of one block; those of several are their sum."""
    starts, ends = block.find(terms)
    return Statistics(block.stop - block.start, int(block.lengths.sum(dtype=np.int64)), terms, ends - starts)


def prepare_queries(queries: Sequence[Sequence[str]], statistics: Statistics) -> PreparedQueries:
    """Returns the queries with each term's weight = how often the query has it · log(1 + (N − df + 0.5)/(df + 0.5))."""
    terms = unique_terms(queries)
    lengths = np.array([len(query) for query in queries], np.int64)
    flat = [term for query in queries for term in query]
    places = np.searchsorted(terms, hash_terms(flat)) if flat else np.empty(0, np.int64)
    width = max(len(terms), 1)
    pairs, counts = np.unique(np.repeat(np.arange(len(queries)), lengths) * width + places, return_counts=True)
    query_of, term_of = np.divmod(pairs, width)
    frequency = statistics.frequency[np.searchsorted(statistics.terms, terms)]
    idf = np.log1p((statistics.passages - frequency + 0.5) / (frequency + 0.5))
    offsets = np.searchsorted(query_of, np.arange(len(queries) + 1)).astype(np.int64)
    return PreparedQueries(terms, offsets, term_of.astype(np.int64), counts * idf[term_of])


def candidates_of(
    blocks: Iterable[tuple[Block, npt.NDArray[np.bool_]]],
    queries: PreparedQueries,
    average_length: float,
    scoring: Scoring,
) -> Candidates:
    """Returns each query's k best passages in the blocks, which come with their banned passages and by ascending number."""
    best = scoring.k
    keys = np.empty((len(queries), 2 * best + 64), np.uint64)  # above `best` is room to collect before the next cut
    counts, floors = np.zeros(len(queries), np.int64), np.zeros(len(queries), np.uint32)
    for block, banned in blocks:
        starts, ends = block.find(queries.terms)
        impact = np.empty(len(block.passages), np.float32)
        norms = np.asarray(scoring.k1 * (1 - scoring.b + scoring.b * (block.lengths / average_length)), np.float64)
        impacts(starts, ends, block.passages, block.tf, norms, impact)
        wanted: tuple[Any, ...] = (queries.offsets, queries.term_of, queries.weights, starts, ends)
        score_block(0, len(queries), *wanted, block.passages, impact, banned, block.start, best, keys, counts, floors)
    return _cut([row[:count] for row, count in zip(keys, counts.tolist(), strict=True)], best)


def merge_candidates(one: Candidates, other: Candidates, k: int) -> Candidates:
    """Returns each query's k best of both."""
    rows = []
    for query in range(len(one)):
        mine = one.keys[one.offsets[query] : one.offsets[query + 1]]
        rows.append(np.concatenate([mine, other.keys[other.offsets[query] : other.offsets[query + 1]]]))
    return _cut(rows, k)


def _cut(rows: Sequence[npt.NDArray[np.uint64]], best: int) -> Candidates:
    for row in rows:
        if len(row) > best:
            keep_best(row, len(row), best)
    kept = [row[:best] for row in rows]
    offsets = np.cumsum([0] + [len(row) for row in kept]).astype(np.int64)
    return Candidates(offsets, np.concatenate([np.empty(0, np.uint64), *kept]))


def ranking_of(candidates: Candidates, k: int) -> Ranking:
    """Returns the candidates sorted, best first and ties by lower number."""
    passages, scores = np.empty(len(candidates.keys), np.int64), np.empty(len(candidates.keys), np.float32)
    for query in range(len(candidates)):
        mine = slice(int(candidates.offsets[query]), int(candidates.offsets[query + 1]))
        row = candidates.keys[mine].reshape(1, -1)
        drain(0, 1, k, row, np.array([row.shape[1]]), np.zeros(1, np.int64), passages[mine], scores[mine])
    return Ranking(candidates.offsets, passages, scores)
