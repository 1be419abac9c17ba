"""Exact BM25 on Apache Spark, for corpora beyond one machine: the ranking is, bit for bit, that of
the search on one machine.

The passages are distributed as shards of consecutive numbers. Each becomes a block of postings,
which stays on the workers; statistics of the blocks are added up, then every task scores its blocks
for a batch of queries, and the best candidates of all tasks are merged. No task has side effects,
so Spark may repeat any of them on another worker at any time.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.corpus.spark.files import Chunk
from tasklm.corpus.spark.session import spark_errors_are_clear
from tasklm.corpus.spark.store import SparkStore
from tasklm.select.base import Ranking, Workplace
from tasklm.select.checks import require_passages
from tasklm.select.lexical.best_keys import keep_best
from tasklm.select.lexical.candidates import Candidates, is_done, joined, row_width, write_batch
from tasklm.select.lexical.index import Block, Statistics, block_statistics, inverted
from tasklm.select.lexical.search import (
    SPARE,
    Close,
    Queries,
    Scorer,
    Scoring,
    batches_of,
    exact,
    norms_of,
    prepare,
    settle,
    terms_and_folder,
    too_close,
)
from tasklm.select.lexical.terms import stemmer
from tasklm.select.lexical.text import raw_block

_SHARDS_PER_TASK = 16
_SLICE_BYTES = 4 << 20  # candidates of a slice of a batch; slices are merged apart from one another


def spark_search(
    store: SparkStore,
    queries: Sequence[Sequence[str]],
    banned: npt.NDArray[np.bool_],
    scoring: Scoring,
    stemming: str,
    place: Workplace,
) -> Ranking:
    """Each query's k best passages that are not banned, computed on the cluster; finished batches
    are kept.
    """
    allowed = require_passages(len(store), banned)
    best = min(scoring.k + SPARE, allowed)
    batches = list(batches_of(queries, row_width(best, allowed), place.memory))
    terms, folder = terms_and_folder(
        queries, banned, scoring, batches, f"{store.key} {stemming}", place
    )
    with (
        spark_errors_are_clear(),
        place.tracker.progress("search", total=len(queries)) as bar,
        ThreadPoolExecutor(place.threads) as pool,
    ):
        search: _Search | None = None
        for number, (first, last) in enumerate(batches):
            if not is_done(folder, number):
                search = search or _Search(store, terms, banned, scoring, stemming, place)
                prepared = prepare(queries[first:last], terms, search.statistics, place.memory)
                candidates = Candidates(len(prepared), best, allowed, place.threads, pool)
                search.fill(candidates, prepared, allowed)
                write_batch(folder, number, candidates, prepared.scales)
            bar.advance(last - first)
        if search is not None:
            search.close()
    return joined(folder, len(batches))


class _Search:
    """The blocks of the corpus on the workers, with everything needed to score them."""

    def __init__(
        self,
        store: SparkStore,
        terms: npt.NDArray[np.uint64],
        banned: npt.NDArray[np.bool_],
        scoring: Scoring,
        stemming: str,
        place: Workplace,
    ) -> None:
        started = time.monotonic()
        self.context, self.scoring = store.spark.context, scoring
        self.blocks = store.spark.persisted(_blocks(store, stemming), "MEMORY_AND_DISK")
        self.banned = self.context.broadcast(np.packbits(banned))
        wanted = self.context.broadcast(terms)
        self.statistics: Statistics = self.blocks.mapPartitions(
            partial(_statistics, terms=wanted)
        ).treeReduce(operator.add)
        wanted.unpersist()
        place.tracker.event(
            "indexed",
            passages=self.statistics.passages,
            seconds=round(time.monotonic() - started, 3),
        )

    def fill(self, candidates: Candidates, queries: Queries, allowed: int) -> None:
        """Finds each query's k best passages."""
        batch = self.context.broadcast(
            _Batch(queries, self.statistics, self.scoring, candidates.best, allowed)
        )
        step = max(1, _SLICE_BYTES // (8 * candidates.best))
        sliced = self.blocks.mapPartitions(
            partial(_candidates, batch=batch, banned=self.banned, step=step)
        )
        merged = sliced.reduceByKey(
            partial(_merged, best=candidates.best), -(-len(queries) // step), int
        )
        parts = [part for _, part in sorted(merged.collect(), key=operator.itemgetter(0))]
        counts = np.concatenate([counts for _, counts in parts])
        candidates.put(
            np.concatenate([keys for keys, _ in parts]), counts, np.zeros(len(queries), np.int64)
        )
        candidates.sort()
        close = too_close(candidates, queries, self.scoring.k)
        scores = np.zeros(len(close.query))
        if len(scores):
            scores = self.blocks.mapPartitions(
                partial(_exact, batch=batch, close=self.context.broadcast(close))
            ).treeReduce(operator.add)
        settle(candidates, close, scores, self.scoring.k)
        batch.unpersist()

    def close(self) -> None:
        """Releases the blocks."""
        self.banned.unpersist()
        self.blocks.unpersist()


@dataclass
class _Batch:
    """The data that a worker needs to score a batch of queries."""

    queries: Queries
    statistics: Statistics
    scoring: Scoring
    best: int
    allowed: int


def _blocks(store: SparkStore, stemming: str) -> Any:
    """The RDD of Blocks; each partition has those of a range of numbers, ascending."""
    shard_of, shards = _shards(store)
    wanted = max(4 * store.spark.context.defaultParallelism, shards // _SHARDS_PER_TASK)
    tasks = max(1, min(shards, wanted))
    keyed = store.chunks().map(partial(_by_shard, shard_of=store.spark.context.broadcast(shard_of)))
    ordered = keyed.repartitionAndSortWithinPartitions(
        tasks, partial(_task_of, tasks=tasks, shards=shards)
    )
    return ordered.mapPartitions(partial(_inverted, stemming=stemming))


def _shards(store: SparkStore) -> tuple[dict[tuple[int, int], int], int]:
    """The shard of each chunk, and how many there are: whole chunks, in order, as many as one block
    may hold.
    """
    shard_of, shard, passages, size = {}, 0, 0, 0
    for file, place, _, count, text in store.heads.tolist():
        too_many = passages + count > store.sizes.shard_passages
        if passages and (too_many or size + text > store.sizes.shard_bytes):
            shard, passages, size = shard + 1, 0, 0
        shard_of[file, place] = shard
        passages, size = passages + count, size + text
    return shard_of, shard + 1


def _by_shard(chunk: Chunk, shard_of: Any) -> tuple[tuple[int, int, int], Chunk]:
    return (shard_of.value[chunk.file, chunk.place], chunk.file, chunk.place), chunk


def _task_of(key: tuple[int, int, int], tasks: int, shards: int) -> int:
    return key[0] * tasks // shards


def _inverted(
    entries: Iterable[tuple[tuple[int, int, int], Chunk]], stemming: str
) -> Iterator[Block]:
    stem = stemmer(stemming)
    for _, members in groupby(entries, lambda entry: entry[0][0]):
        chunks = [chunk for _, chunk in members if len(chunk)]
        if chunks:
            text = np.frombuffer(b"".join(chunk.text for chunk in chunks), np.uint8)
            lengths = np.concatenate([np.diff(chunk.bounds) for chunk in chunks])
            bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            yield inverted(raw_block(chunks[0].start, text, bounds, stem))


def _statistics(blocks: Iterable[Block], terms: Any) -> Iterator[Statistics]:
    yield sum(
        (block_statistics(block, terms.value) for block in blocks),
        Statistics(0, 0, np.zeros(len(terms.value), np.int64)),
    )


def _candidates(
    blocks: Iterable[Block], batch: Any, banned: Any, step: int
) -> Iterator[tuple[int, tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]]:
    """Yields the best keys of the task's blocks, a slice of `step` queries at a time, with how many
    each query has.
    """
    known: _Batch = batch.value
    with ThreadPoolExecutor(1) as pool:
        candidates = Candidates(len(known.queries), known.best, known.allowed, 1, pool)
        scorer = Scorer(known.queries, candidates)
        for block in blocks:
            scorer.add(
                block,
                _banned(banned.value, block),
                norms_of(block, known.statistics, known.scoring),
            )
        candidates.sort()
    for number, first in enumerate(range(0, len(known.queries), step)):
        counts = candidates.counts[first : first + step]
        rows = [
            row[:count]
            for row, count in zip(candidates.keys[first : first + step], counts, strict=True)
        ]
        yield number, (np.concatenate(rows), counts.copy())


def _merged(
    one: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]],
    other: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]],
    best: int,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The `best` highest keys of each query in both slices."""
    rows = []
    of_one, of_other = (np.split(keys, np.cumsum(counts)[:-1]) for keys, counts in (one, other))
    for pair in zip(of_one, of_other, strict=True):
        row = np.concatenate(pair)
        if len(row) > best:
            keep_best(row, len(row), best)
        rows.append(row[:best])
    return np.concatenate(rows), np.array([len(row) for row in rows], np.int64)


def _exact(blocks: Iterable[Block], batch: Any, close: Any) -> Iterator[npt.NDArray[np.float64]]:
    """Yields the exact scores of the close passages that are in the task's blocks, 0 for the
    others.
    """
    known: _Batch = batch.value
    pairs: Close = close.value
    scores = np.zeros(len(pairs.query))
    for block in blocks:
        exact(block, pairs, known.queries, norms_of(block, known.statistics, known.scoring), scores)
    yield scores


def _banned(packed: npt.NDArray[np.uint8], block: Block) -> npt.NDArray[np.bool_]:
    first = block.start // 8
    bits = np.unpackbits(packed[first : block.stop // 8 + 1])[
        block.start - first * 8 : block.stop - first * 8
    ]
    return np.ascontiguousarray(bits).view(np.bool_)
