"""The corpus on a cluster: the passages, their order and their numbers are those of a PassageStore
of the same files.

Passages are never collected on one machine. This folder holds what numbering them needs, about a
bit per passage:

chunks.npy    int64 [chunks, 5], in corpus order: file, place in the file, passages read,
              passages kept, bytes kept
kept.npy      bits, one per passage read: 0 for a repeat of an earlier one
sample.json   the texts of some passages
store.json    format, files, how they are read, and counts; written last
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.spark.fetched import FetchedPassages
from tasklm.corpus.spark.files import (
    Chunk,
    CorpusFile,
    FileEnd,
    Sizes,
    files_key,
    only_chunks,
    read_chunks,
)
from tasklm.corpus.spark.session import Spark, spark_errors_are_clear
from tasklm.errors import DataError, RunError
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import damaged, digest, read_json, write_json
from tasklm.tracking import Tracker

if TYPE_CHECKING:
    from tasklm.corpus.decontaminate import Contamination

FORMAT = 1
SAMPLE = 2000  # passages whose texts are kept here, for reports
_KEYS_AT_ONCE = 1 << 20  # keys that a task holds before it sends them on
_BUCKET_KEYS = 4 << 20  # keys that one task of the search for repeats sorts


def spark_corpus_key(files: Sequence[CorpusFile], column: str, passage_words: int) -> str:
    """The key of the store built from these files and settings."""
    return digest(["spark corpus", FORMAT, files_key(files), column, passage_words])


@dataclass(frozen=True)
class CorpusText:
    """How a corpus is read: which files, which column, and the length of passages in words."""

    files: Sequence[CorpusFile]
    column: str
    passage_words: int


def build_spark_store(
    folder: Path, text: CorpusText, spark: Spark, tracker: Tracker, sizes: Sizes | None = None
) -> None:
    """Reads the files on the cluster and writes which passages there are to the folder."""
    files, column, passage_words = text.files, text.column, text.passage_words
    sizes, started = sizes or Sizes(), time.monotonic()
    (folder / "store.json").unlink(missing_ok=True)
    with spark_errors_are_clear(), tracker.progress("reading the corpus"):
        raw = _read(files, column, passage_words, sizes, spark)
        heads, counts = _heads(raw, files, tracker)
        read = sum(head[2] for head in heads)
        first_bits = np.packbits(_first_ones(raw, heads, read, spark))
        numbered = raw.mapPartitions(only_chunks).map(_Numbering(heads, first_bits, spark))
        weighed = sorted(numbered.map(_weigh).collect())
        sample = _sample(numbered, sum(entry[2] for entry in weighed), spark)
    rows = [
        (*head, count, size) for head, (_, _, count, size, _) in zip(heads, weighed, strict=True)
    ]
    counts |= {
        "passages": sum(row[3] for row in rows),
        "bytes": sum(row[4] for row in rows),
        "words": sum(entry[4] for entry in weighed),
    }
    counts["duplicates"] = read - counts["passages"]
    if not counts["passages"]:
        remedy = (
            "Name other files, or the column with the text with --corpus-column "
            "(recipe: data.corpus_column)."
        )
        raise DataError(
            "the corpus has no text", file=", ".join(file.path for file in files[:3]), remedy=remedy
        )
    tracker.event("corpus", **counts, seconds=round(time.monotonic() - started, 3))
    np.save(folder / "chunks.npy", np.array(rows, np.int64), allow_pickle=False)
    np.save(folder / "kept.npy", first_bits, allow_pickle=False)
    write_json(folder / "sample.json", sample)
    reading = {
        "column": column,
        "passage_words": passage_words,
        "files": [asdict(file) for file in files],
        "sizes": asdict(sizes),
    }
    write_json(folder / "store.json", {"format": FORMAT, "counts": counts, **reading})


def _read(
    files: Sequence[CorpusFile], column: str, passage_words: int, sizes: Sizes, spark: Spark
) -> Any:
    """The RDD of the files' Chunks and FileEnds; passages stay on the workers' disks once read."""
    key = (tuple(files), column, passage_words, sizes)
    if key not in spark.held:
        spark.held[key] = spark.persisted(
            read_chunks(files, column, passage_words, sizes, spark), "DISK_ONLY"
        )
    return spark.held[key]


def _sample(numbered: Any, passages: int, spark: Spark) -> list[str]:
    """The texts of some passages, drawn with replacement; the draw depends on the number of
    passages alone.
    """
    if not passages:
        return []
    drawn = np.random.default_rng(0).integers(0, passages, SAMPLE).tolist()
    wanted = spark.context.broadcast(np.unique(np.array(drawn, np.int64)))
    lists = numbered.flatMap(partial(_wanted_passages, wanted=wanted)).collect()
    texts = {number: text for number, _, text, _ in chain.from_iterable(lists)}
    wanted.unpersist()
    return [texts[number] for number in drawn]


def _heads(
    raw: Any, files: Sequence[CorpusFile], tracker: Tracker
) -> tuple[list[tuple[int, int, int]], dict[str, int]]:
    """File, position and passages of every chunk in corpus order, and the counts; raises any
    problem of a file.
    """
    parts = raw.map(_head).collect()
    ends = sorted((end for end in parts if isinstance(end, FileEnd)), key=lambda end: end.file)
    left_out = [end for end in ends if end.no_text]
    counts: Counter[str] = Counter({"documents": 0, "empty": 0})
    for end in ends:
        if end.problem is not None:
            problem, line, remedy = end.problem
            error = DataError(problem, file=files[end.file].path, line=line, remedy=remedy)
            if not end.no_text or (len(left_out) == len(files) and end is left_out[-1]):
                raise error
            tracker.say(f"skipped in the corpus: {error}")
        counts.update(end.counts)
    return sorted(head for head in parts if not isinstance(head, FileEnd)), dict(counts)


def _head(part: Chunk | FileEnd) -> tuple[int, int, int] | FileEnd:
    if isinstance(part, FileEnd):
        return part
    return part.file, part.place, len(part)


def _weigh(chunk: Chunk) -> tuple[int, int, int, int, int]:
    words = int(chunk.words.sum(dtype=np.int64))
    return chunk.file, chunk.place, len(chunk), len(chunk.text), words


def _first_ones(
    raw: Any, heads: Sequence[tuple[int, int, int]], read: int, spark: Spark
) -> NDArray[np.bool_]:
    """For each passage read whether it is the first with its text.

    Keys meet in buckets, each sorted by one task; only the places of repeats come back.
    """
    starts = spark.context.broadcast(_starts(heads, [head[2] for head in heads]))
    buckets = max(1, min(-(-read // _BUCKET_KEYS), 1 << 16))
    keyed = raw.mapPartitions(partial(_keys_by_bucket, starts=starts, buckets=buckets))
    first_ones = np.ones(read, np.bool_)
    for repeats in keyed.partitionBy(buckets, int).mapPartitions(_repeats).collect():
        first_ones[repeats] = False
    starts.unpersist()
    return first_ones


def _starts(heads: Sequence[tuple[int, ...]], counts: Sequence[int]) -> dict[tuple[int, int], int]:
    starts, at = {}, 0
    for head, count in zip(heads, counts, strict=True):
        starts[head[0], head[1]] = at
        at += count
    return starts


def _keys_by_bucket(
    parts: Iterable[Chunk | FileEnd], starts: Any, buckets: int
) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    held: list[NDArray[np.uint64]] = []
    size = 0
    for chunk in only_chunks(parts):
        start = starts.value[chunk.file, chunk.place]
        held.append(np.stack([chunk.keys, np.arange(start, start + len(chunk), dtype=np.uint64)]))
        size += len(chunk)
        if size >= _KEYS_AT_ONCE:
            yield from _bucketed(held, buckets)
            held, size = [], 0
    if held:
        yield from _bucketed(held, buckets)


def _bucketed(
    held: Sequence[NDArray[np.uint64]], buckets: int
) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    pairs = np.concatenate(held, axis=1)
    bucket_of = (pairs[0] % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(bucket_of, kind="stable")
    bounds = np.searchsorted(bucket_of[order], np.arange(buckets + 1))
    for bucket in np.unique(bucket_of).tolist():
        yield bucket, np.ascontiguousarray(pairs[:, order[bounds[bucket] : bounds[bucket + 1]]])


def _repeats(entries: Iterable[tuple[int, NDArray[np.uint64]]]) -> Iterator[NDArray[np.int64]]:
    """Yields the numbers of the passages of a bucket whose text an earlier one has."""
    arrays = [pairs for _, pairs in entries]
    if arrays:
        keys, numbers = np.concatenate(arrays, axis=1)
        order = np.lexsort((numbers, keys))
        again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]]) + 1
        yield numbers[order[again]].astype(np.int64)


class _Numbering:
    """Chunk as read → chunk without repeats, numbered."""

    def __init__(
        self, heads: Sequence[tuple[int, ...]], first_bits: NDArray[np.uint8], spark: Spark
    ) -> None:
        counts = np.array([head[2] for head in heads], np.int64)
        read = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        whole = np.unpackbits(first_bits, count=int(read[-1])).view(np.bool_)
        numbers = np.zeros(1, np.int64)
        if len(heads):
            numbers = np.cumsum([0, *np.add.reduceat(whole, read[:-1], dtype=np.int64)])
        bounds = zip(read[:-1].tolist(), read[1:].tolist(), numbers[:-1].tolist(), strict=True)
        places = {(head[0], head[1]): place for head, place in zip(heads, bounds, strict=True)}
        self._known = spark.context.broadcast((places, first_bits))

    def __call__(self, chunk: Chunk) -> Chunk:
        places, first_bits = self._known.value
        start, end, number = places.get((chunk.file, chunk.place), (0, -1, 0))
        if end - start != len(chunk):
            problem = "a file of the corpus has changed since it was first read"
            raise RunError(f"{problem}; run the same command again")
        first = start // 8
        bits = np.unpackbits(first_bits[first : end // 8 + 1])
        first_ones = bits[start - first * 8 : end - first * 8].view(np.bool_)
        return chunk.numbered(first_ones, number)


class SparkStore:
    """The passages of a corpus that stays on the cluster; Spark starts when passages are needed,
    not before.
    """

    def __init__(self, folder: Path, spark: Spark) -> None:
        path = folder / "store.json"
        with damage_is_clear(path):
            record = read_json(path)
            if record["format"] != FORMAT:
                again = (
                    "Delete this folder and run the same command again to rebuild it from the "
                    "corpus."
                )
                raise RunError(f"{folder} was written by another version of tasklm. {again}")
            self.counts: dict[str, int] = dict(record["counts"])
            self.files = [CorpusFile(**file) for file in record["files"]]
            self.sizes = Sizes(**record["sizes"])
            self._column, self._passage_words = str(record["column"]), int(record["passage_words"])
            self.heads: NDArray[np.int64] = load_array(
                folder / "chunks.npy", np.int64, dimensions=2
            )
            self._kept: NDArray[np.uint8] = load_array(folder / "kept.npy", np.uint8)
            read, kept_passages = int(self.heads[:, 2].sum()), int(self.heads[:, 3].sum())
            whole = kept_passages == self.counts["passages"] and len(self._kept) == -(-read // 8)
        if not whole:
            raise damaged(path, "the files of the corpus are inconsistent")
        self.folder, self.spark = folder, spark
        # says what is in it
        self.key = digest([record["counts"], record["files"], self._column, self._passage_words])

    @property
    def local(self) -> None:
        """None: the texts are on the cluster."""
        return None

    @property
    def cluster(self) -> SparkStore:
        """This corpus."""
        return self

    def contaminated(
        self, splits: Mapping[str, Sequence[str]], run_words: int, tracker: Tracker
    ) -> Contamination:
        """Which passages share `run_words` consecutive words with any text of the splits."""
        from tasklm.corpus.spark.decontaminate import contaminated_on_spark  # which reads stores

        return contaminated_on_spark(self, splits, run_words, tracker)

    def fetch(self, numbers: NDArray[np.int64], folder: Path) -> FetchedPassages:
        """Some passages, brought here."""
        return FetchedPassages(self.passages(numbers), folder)

    def close(self) -> None:
        """Stops the session: training needs no cluster."""
        self.spark.stop()

    def __len__(self) -> int:
        return self.counts["passages"]

    def chunks(self) -> Any:
        """The RDD of all Chunks, without repeats and numbered."""
        if self.key not in self.spark.held:
            raw = _read(self.files, self._column, self._passage_words, self.sizes, self.spark)
            numbering = _Numbering(self.heads.tolist(), self._kept, self.spark)
            self.spark.held[self.key] = raw.mapPartitions(only_chunks).map(numbering)
        return self.spark.held[self.key]

    def sample(self) -> list[str]:
        """The texts of 2,000 passages drawn at random, the same at each call."""
        texts: list[str] = read_json(self.folder / "sample.json")
        return texts

    def collect(self, what: Callable[[Chunk], Iterable[Any]]) -> Iterator[Any]:
        """Yields the function's results for the chunks; all chunks are processed in parallel,
        results come in any order.
        """
        with spark_errors_are_clear():
            results = self.spark.persisted(self.chunks().flatMap(what), "MEMORY_AND_DISK")
            try:
                results.count()
                yield from results.toLocalIterator()
            finally:
                results.unpersist()

    def passages(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, str, str, str]]:
        """Yields number, id, text and source of some passages, in any order."""
        wanted = self.spark.context.broadcast(np.unique(np.asarray(numbers, np.int64)))
        try:
            for rows in self.collect(partial(_wanted_passages, wanted=wanted)):
                yield from rows
        finally:
            wanted.unpersist()

    def texts_of(self, numbers: Sequence[int]) -> list[str]:
        """The texts of some passages, as many as fit in memory, in the requested order."""
        texts = {number: text for number, _, text, _ in self.passages(np.array(numbers, np.int64))}
        return [texts[int(number)] for number in numbers]


def _wanted_passages(chunk: Chunk, wanted: Any) -> Iterator[list[tuple[int, str, str, str]]]:
    first, last = np.searchsorted(wanted.value, [chunk.start, chunk.start + len(chunk)])
    numbers = wanted.value[first:last].tolist()
    if numbers:
        at = [number - chunk.start for number in numbers]
        yield [
            (
                chunk.start + i,
                f"{int(chunk.keys[i]):016x}",
                chunk.passage(i),
                chunk.sources[chunk.source_of[i]],
            )
            for i in at
        ]
