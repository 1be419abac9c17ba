"""Exact BM25 on Apache Spark, for corpora beyond one machine: the ranking is that of the search on one machine.

The passages are dealt out as shards of consecutive numbers. Each becomes a block of postings, which is kept on the workers;
statistics of the blocks are added up, then every task scores its blocks for a batch of queries and the best k are merged.
No task has a side effect, so Spark may do any of them again, on another worker, at any time.
"""

from __future__ import annotations

import operator
import os
import time
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.corpus.spark_files import Chunk
from tasklm.corpus.spark_session import spark_errors_are_clear
from tasklm.corpus.spark_store import SparkStore
from tasklm.runs import full_disk_is_clear
from tasklm.select.base import Ranking, Workplace
from tasklm.select.bm25_index import Block
from tasklm.select.bm25_search import Scoring
from tasklm.select.bm25_shards import (
    Candidates,
    Statistics,
    block_of,
    candidates_of,
    merge_candidates,
    prepare_queries,
    ranking_of,
    statistics_of,
    unique_terms,
)
from tasklm.select.checks import require_passages

_SHARDS_PER_TASK = 16
_SLICE_BYTES = 4 << 20  # candidates of a slice of a batch; slices are merged apart from one another


def spark_search(
    store: SparkStore,
    queries: Sequence[Sequence[str]],
    banned: npt.NDArray[np.bool_],
    scoring: Scoring,
    place: Workplace,
) -> Ranking:
    """Returns each query's k best passages that are not banned, found on the cluster."""
    allowed = require_passages(len(store), banned)
    scoring = Scoring(scoring.k1, scoring.b, min(scoring.k, allowed))
    started = time.monotonic()
    with spark_errors_are_clear():
        context = store.spark.context
        blocks = store.spark.persisted(_blocks(store), "MEMORY_AND_DISK")
        forbidden = context.broadcast(np.packbits(banned))
        try:
            statistics = _statistics(blocks, unique_terms(queries), context)
            place.tracker.event("indexed", passages=statistics.passages, seconds=round(time.monotonic() - started, 3))
            width = 8 * (2 * scoring.k + 64)
            step = max(1, min(store.sizes.batch_bytes // width, store.sizes.batch_queries))
            found = _Found(place.scratch)
            with place.tracker.progress("search", total=len(queries)) as bar:
                for first in range(0, len(queries), step):
                    batch = queries[first : first + step]
                    found.add(_ranked(blocks, batch, statistics, scoring, forbidden, context))
                    bar.advance(len(batch))
        finally:
            forbidden.unpersist()
            blocks.unpersist()
    return found.ranking()


def _blocks(store: SparkStore) -> Any:
    """Returns the RDD of Blocks; each partition has those of a range of numbers, ascending."""
    shard_of, shards = _shards(store)
    tasks = max(1, min(shards, max(4 * store.spark.context.defaultParallelism, shards // _SHARDS_PER_TASK)))
    keyed = store.chunks().map(partial(_by_shard, shard_of=store.spark.context.broadcast(shard_of)))
    ordered = keyed.repartitionAndSortWithinPartitions(tasks, partial(_task_of, tasks=tasks, shards=shards))
    return ordered.mapPartitions(_inverted)


def _shards(store: SparkStore) -> tuple[dict[tuple[int, int], int], int]:
    """Returns the shard of each chunk, and how many there are: whole chunks, in order, as many as one block may hold."""
    shard_of, shard, passages, size = {}, 0, 0, 0
    for file, place, _, kept, text in store.heads.tolist():
        if passages and (passages + kept > store.sizes.shard_passages or size + text > store.sizes.shard_bytes):
            shard, passages, size = shard + 1, 0, 0
        shard_of[file, place] = shard
        passages, size = passages + kept, size + text
    return shard_of, shard + 1


def _by_shard(chunk: Chunk, shard_of: Any) -> tuple[tuple[int, int, int], Chunk]:
    return (shard_of.value[chunk.file, chunk.place], chunk.file, chunk.place), chunk


def _task_of(key: tuple[int, int, int], tasks: int, shards: int) -> int:
    return key[0] * tasks // shards


def _inverted(entries: Iterable[tuple[tuple[int, int, int], Chunk]]) -> Iterator[Block]:
    for _, members in groupby(entries, lambda entry: entry[0][0]):
        chunks = [chunk for _, chunk in members if len(chunk)]
        if chunks:
            yield block_of((text for chunk in chunks for text in chunk.texts()), chunks[0].start)


def _statistics(blocks: Any, terms: npt.NDArray[np.uint64], context: Any) -> Statistics:
    wanted = context.broadcast(terms)
    found: Statistics = blocks.mapPartitions(partial(_added_statistics, terms=wanted)).treeReduce(operator.add)
    wanted.unpersist()
    return found


def _added_statistics(blocks: Iterable[Block], terms: Any) -> Iterator[Statistics]:
    total = Statistics(0, 0, terms.value, np.zeros(len(terms.value), np.int64))
    for block in blocks:
        total += statistics_of(block, terms.value)
    yield total


def _ranked(
    blocks: Any,
    queries: Sequence[Sequence[str]],
    statistics: Statistics,
    scoring: Scoring,
    forbidden: Any,
    context: Any,
) -> Ranking:
    """Returns the ranking of one batch of queries."""
    batch = context.broadcast(prepare_queries(queries, statistics))
    step = max(1, _SLICE_BYTES // (8 * scoring.k))
    known = {"queries": batch, "forbidden": forbidden, "average_length": statistics.average_length, "scoring": scoring, "step": step}
    found = blocks.mapPartitions(partial(_slices, **known))
    merged = found.reduceByKey(partial(merge_candidates, k=scoring.k), -(-len(queries) // step), int)
    parts = [candidates for _, candidates in sorted(merged.collect(), key=lambda entry: entry[0])]
    batch.unpersist()
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
    keys = np.concatenate([np.empty(0, np.uint64), *(part.keys for part in parts)])
    return ranking_of(Candidates(np.cumsum(counts), keys), scoring.k)


def _slices(
    blocks: Iterable[Block], queries: Any, forbidden: Any, average_length: float, scoring: Scoring, step: int
) -> Iterator[tuple[int, Candidates]]:
    """Yields the candidates of a task's blocks, a slice of `step` queries at a time."""
    found = candidates_of(((block, _banned(forbidden.value, block)) for block in blocks), queries.value, average_length, scoring)
    for number, first in enumerate(range(0, len(found), step)):
        yield number, found.slice(first, min(first + step, len(found)))


def _banned(packed: npt.NDArray[np.uint8], block: Block) -> npt.NDArray[np.bool_]:
    first = block.start // 8
    bits = np.unpackbits(packed[first : block.stop // 8 + 1])[block.start - first * 8 : block.stop - first * 8]
    return np.ascontiguousarray(bits).view(np.bool_)


class _Found:
    """The rankings of batches, joined; they wait in files, since together they may be larger than memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts = [np.zeros(1, np.int64)]

    def _path(self, name: str) -> Path:
        return self._folder / f"found-{name}.{os.getpid()}.tmp"

    def add(self, ranking: Ranking) -> None:
        self._counts.append(np.diff(ranking.offsets))
        with full_disk_is_clear(self._folder):
            for name in ("passages", "scores"):
                with self._path(name).open("ab") as file:
                    getattr(ranking, name).tofile(file)

    def ranking(self) -> Ranking:
        """Returns all of it, mapped; the files are gone when nothing holds the ranking any more."""
        offsets = np.cumsum(np.concatenate(self._counts))
        arrays: dict[str, Any] = {"passages": np.empty(0, np.int64), "scores": np.empty(0, np.float32)}
        for name, empty in list(arrays.items()):
            if offsets[-1]:
                arrays[name] = np.asarray(np.memmap(self._path(name), empty.dtype, mode="r"))
            self._path(name).unlink(missing_ok=True)
        return Ranking(offsets, **arrays)


class FetchedPassages:
    """Some passages of a SparkStore, brought here into a file: what `write_selection` needs of a store."""

    def __init__(self, store: SparkStore, numbers: npt.NDArray[np.int64], folder: Path) -> None:
        path = folder / f"fetched.{os.getpid()}.tmp"
        found, bounds, origins, ids = array("q"), array("q", [0]), array("q"), array("Q")
        sources: dict[str, int] = {}
        with full_disk_is_clear(folder), path.open("wb") as file:
            for number, name, text, source in store.passages(numbers):
                file.write(text.encode("utf-8"))
                found.append(number)
                bounds.append(file.tell())
                ids.append(int(name, 16))
                origins.append(sources.setdefault(source, len(sources)))
        self._order = np.argsort(np.array(found, np.int64))
        self._numbers = np.array(found, np.int64)[self._order]
        self._bounds, self._ids, self._origins, self._sources = bounds, ids, origins, list(sources)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        path.unlink()

    def __len__(self) -> int:
        return len(self._numbers)

    def _place(self, number: int) -> int:
        at = int(np.searchsorted(self._numbers, number))
        if at == len(self) or self._numbers[at] != number:
            raise IndexError(f"passage {number} was not fetched")
        return int(self._order[at])

    def text(self, number: int) -> str:
        """Returns passage `number` of the store."""
        at = self._place(number)
        return os.pread(self._file, self._bounds[at + 1] - self._bounds[at], self._bounds[at]).decode("utf-8")

    def id(self, number: int) -> str:
        """Returns its stable id."""
        return f"{self._ids[self._place(number)]:016x}"

    def source(self, number: int) -> str:
        """Returns where it is from."""
        return self._sources[self._origins[self._place(number)]]
