"""Many queries at once against a BM25 index: blocks outside, queries inside, every posting of every term counted.

The result is the exact top k: nothing is pruned, and scores are summed in double and kept in single precision. Memory
is bounded: queries are taken in batches sized by k, blocks are memory-mapped one after the other, and results beyond
one batch wait in a file.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.runs import full_disk_is_clear
from tasklm.select.base import Ranking, Workplace
from tasklm.select.bm25_index import Block, Bm25Index, hash_terms, verify
from tasklm.select.bm25_kernels import drain, impacts, score_block
from tasklm.tracking import Bar

_BATCH_BYTES = 256 << 20  # candidates held while a batch of queries is scored
_BATCH_QUERIES = 1 << 16


@dataclass
class Scoring:
    """The two dials of BM25 and how many passages each query gets."""

    k1: float
    b: float
    k: int


@dataclass
class _Batch:
    """Queries as rows of (term, weight), terms by ascending hash so that sums do not depend on the batch."""

    terms: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]
    term_of: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]


def search(
    index: Bm25Index,
    queries: Sequence[Sequence[str]],
    banned: npt.NDArray[np.bool_],
    scoring: Scoring,
    place: Workplace,
) -> Ranking:
    """Returns each query's k best passages that are not banned."""
    allowed = index.passages - int(np.count_nonzero(banned))
    best = min(scoring.k, allowed)
    width = max(best + 1, min(2 * best + 64, allowed + 1))  # above `best` is room to collect before the next cut
    step = min(max(1, _BATCH_BYTES // (8 * width)), _BATCH_QUERIES, max(len(queries), 1))
    counts = [np.zeros(1, np.int64)]
    passages, scores = _Column(np.dtype(np.int64), place.scratch), _Column(np.dtype(np.float32), place.scratch)
    checked: set[int] = set()
    started, threads = time.monotonic(), place.threads
    with place.tracker.progress("search", total=len(queries) * len(index.blocks)) as bar, ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(queries), step):
            batch = _batch(index, queries[first : first + step])
            rows = _Rows(len(batch.offsets) - 1, width, best, threads, pool)
            for block in index.blocks:
                if block.start not in checked:
                    verify(block)
                    checked.add(block.start)
                _score(batch, rows, block, banned, _norms(index, block, scoring))
                _tell(bar, rows.count, first * len(index.blocks) + rows.count, started, len(index.blocks))
            found = rows.drained()
            counts.append(found.counts)
            passages.add(found.passages)
            scores.add(found.scores)
    return Ranking(np.cumsum(np.concatenate(counts)), passages.whole(), scores.whole())


def _tell(bar: Bar, advance: int, done: int, started: float, blocks: int) -> None:
    rate = done / blocks / max(time.monotonic() - started, 1e-9)
    bar.advance(advance, f"{rate:,.0f} queries/s")


@dataclass
class _Found:
    counts: npt.NDArray[np.int64]
    passages: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


class _Rows:
    """The candidates of each query of a batch, and the threads that fill them."""

    def __init__(self, count: int, width: int, best: int, threads: int, pool: ThreadPoolExecutor) -> None:
        self.count, self.best, self.pool = count, best, pool
        self.keys = np.empty((count, width), np.uint64)
        self.counts = np.zeros(count, np.int64)
        self.floors = np.zeros(count, np.uint32)
        self.share = max(1, -(-count // (4 * threads)))

    def split(self, work: Callable[[int, int], None]) -> None:
        """Does `work(first, last)` for all queries, shared out to the threads; rows are independent of each other."""
        tasks = [self.pool.submit(work, first, min(first + self.share, self.count)) for first in range(0, self.count, self.share)]
        for task in tasks:
            task.result()

    def drained(self) -> _Found:
        """Returns the best passages of every query, sorted."""
        counts = np.minimum(self.counts, self.best)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        found = _Found(counts, np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.float32))
        self.split(
            lambda first, last: drain(
                first,
                last,
                self.best,
                self.keys,
                self.counts,
                offsets,
                found.passages,
                found.scores,
            )
        )
        return found


def _score(
    batch: _Batch,
    rows: _Rows,
    block: Block,
    banned: npt.NDArray[np.bool_],
    norms: npt.NDArray[np.float64],
) -> None:
    starts, ends = block.find(batch.terms)
    impact = np.empty(len(block.passages), np.float32)  # only the pages of wanted terms are ever touched
    impacts(starts, ends, block.passages, block.tf, norms, impact)
    here = np.ascontiguousarray(banned[block.start : block.stop])
    rows.split(
        lambda first, last: score_block(
            first,
            last,
            batch.offsets,
            batch.term_of,
            batch.weights,
            starts,
            ends,
            block.passages,
            impact,
            here,
            block.start,
            rows.best,
            rows.keys,
            rows.counts,
            rows.floors,
        )
    )


def _norms(index: Bm25Index, block: Block, scoring: Scoring) -> npt.NDArray[np.float64]:
    relative = block.lengths / index.average_length
    return np.asarray(scoring.k1 * (1 - scoring.b + scoring.b * relative), np.float64)


def _batch(index: Bm25Index, queries: Sequence[Sequence[str]]) -> _Batch:
    """Returns the queries with each term's weight = how often the query has it · log(1 + (N − df + 0.5)/(df + 0.5))."""
    numbers: dict[str, int] = {}
    flat = array("q", (numbers.setdefault(term, len(numbers)) for query in queries for term in query))
    terms, by_number = np.unique(hash_terms(list(numbers)), return_inverse=True)
    query_of = np.repeat(np.arange(len(queries)), [len(query) for query in queries])
    pairs, counts = np.unique(query_of * max(len(terms), 1) + by_number[np.frombuffer(flat, np.int64)], return_counts=True)
    query_of, term_of = np.divmod(pairs, max(len(terms), 1))
    frequency = index.frequencies(terms)
    idf = np.log1p((index.passages - frequency + 0.5) / (frequency + 0.5))
    offsets = np.searchsorted(query_of, np.arange(len(queries) + 1)).astype(np.int64)
    return _Batch(terms, offsets, term_of.astype(np.int64), counts * idf[term_of])


class _Column:
    """Arrays joined end to end: one is kept as it is, more of them wait in an unnamed file."""

    def __init__(self, kind: np.dtype[Any], room: Path) -> None:
        self.kind, self.room = kind, room
        self.parts: list[npt.NDArray[Any]] = []
        self.file: Any = None

    def add(self, part: npt.NDArray[Any]) -> None:
        """Puts `part` at the end."""
        self.parts.append(part)
        if len(self.parts) > 1 or self.file is not None:
            with full_disk_is_clear(self.room):
                self.file = self.file or tempfile.TemporaryFile(dir=self.room)  # noqa: SIM115 - lives as long as its map
                for waiting in self.parts:
                    waiting.tofile(self.file)
            self.parts = []

    def whole(self) -> npt.NDArray[Any]:
        """Returns all parts as one array."""
        if self.file is None:
            return self.parts[0] if self.parts else np.empty(0, self.kind)
        self.file.flush()
        if self.file.tell() == 0:
            return np.empty(0, self.kind)
        return np.asarray(np.memmap(self.file, self.kind, mode="r"))
