"""The corpus on a cluster: the passages, their order and their numbers are those of a PassageStore
of the same files.

Passages are never collected on one machine. This folder holds what numbering them needs, about a
bit per passage:

chunks.npy    int64 [chunks, 5], in corpus order: file, place in the file, passages read,
              passages kept, bytes kept
kept.npy      bits, one per passage read: 0 for a repeat of an earlier one
sample.json   the texts of some passages
files.json    the files with the hashes of their contents, and the passages of each by licence
portions.npy  uint32, the portion of each passage; only where a file has several
store.json    format, files, how they are read, and counts; written last
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.licences import RowRule
from tasklm.corpus.portions import FileRead, counted, portions_from, read_files, write_files
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
from tasklm.corpus.spark.repeats import FirstOnes, Head, Weighed, first_ones, weigh
from tasklm.corpus.spark.session import Spark, spark_errors_are_clear
from tasklm.errors import DataError, RunError
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import damaged, digest, read_json, write_json
from tasklm.tracking import Tracker

if TYPE_CHECKING:
    from tasklm.corpus.contamination import Contamination

FORMAT = 2
SAMPLE = 2000  # passages whose texts are kept here, for reports


def spark_corpus_key(text: CorpusText) -> str:
    """The key of the store built from these files and settings."""
    return digest(["spark corpus", FORMAT, files_key(text.files), *text.settings])


def build_spark_store(
    folder: Path, text: CorpusText, spark: Spark, tracker: Tracker, sizes: Sizes | None = None
) -> None:
    """Reads the files on the cluster and writes which passages there are to the folder."""
    sizes, started = sizes or Sizes(), time.monotonic()
    (folder / "store.json").unlink(missing_ok=True)
    with spark_errors_are_clear(), tracker.progress("reading the corpus"):
        raw = _read(text, sizes, spark)
        heads, ends = _heads(raw, text.files, tracker)
        read = sum(head.passages for head in heads)
        firsts = first_ones(raw, heads, spark)
        first_bits = np.packbits(firsts.ones)
        numbered = raw.mapPartitions(only_chunks).map(_Numbering(heads, first_bits, spark))
        weighed = sorted(numbered.map(weigh).collect(), key=lambda one: (one.file, one.place))
        sample = _sample(numbered, sum(one.passages for one in weighed), spark)
    counts = _counts(ends, weighed, read, text.files)
    tracker.event("corpus", **counts, seconds=round(time.monotonic() - started, 3))
    rows = [
        (head.file, head.place, head.passages, one.passages, one.bytes)
        for head, one in zip(heads, weighed, strict=True)
    ]
    np.save(folder / "chunks.npy", np.array(rows, np.int64), allow_pickle=False)
    np.save(folder / "kept.npy", first_bits, allow_pickle=False)
    write_json(folder / "sample.json", sample)
    _write_portions(folder, [end.about for end in ends], firsts, weighed)
    reading = {
        "column": text.column,
        "passage_words": text.passage_words,
        "licence_column": text.licence_column,
        "rules": [asdict(rule) for rule in text.rules],
        "files": [asdict(file) for file in text.files],
        "sizes": asdict(sizes),
    }
    write_json(folder / "store.json", {"format": FORMAT, "counts": counts, **reading})


def _counts(
    ends: Sequence[FileEnd], weighed: Sequence[Weighed], read: int, files: Sequence[CorpusFile]
) -> dict[str, int]:
    """The counts of a corpus; raises DataError if it has no text."""
    counts: Counter[str] = Counter({"documents": 0, "empty": 0})
    for end in ends:
        counts.update(end.counts)
    counts["passages"] = sum(one.passages for one in weighed)
    counts["bytes"] = sum(one.bytes for one in weighed)
    counts["words"] = sum(one.words for one in weighed)
    counts["duplicates"] = read - counts["passages"]
    if not counts["passages"]:
        remedy = (
            "Name other files, or the column with the text with --corpus-column "
            "(recipe: data.corpus_column)."
        )
        raise DataError(
            "the corpus has no text", file=", ".join(file.path for file in files[:3]), remedy=remedy
        )
    return dict(counts)


def _write_portions(
    folder: Path, files: Sequence[FileRead], firsts: FirstOnes, weighed: Sequence[Weighed]
) -> None:
    """Writes the files, the passages of each by licence, and, where files have several licences,
    the portion of each passage.
    """
    passages: Counter[int] = Counter()
    for one in weighed:
        passages += counted(firsts.portions_in(one))
    named = [(file, licence) for file, licence in firsts.places]
    portions = portions_from(named, passages, firsts.repeats, firsts.elsewhere)
    write_files(folder, files, portions)
    if len({file for file, _ in named}) < len(named):
        places = {(one.file, one.licence): at for at, one in enumerate(portions)}
        new = np.array([places.get(name, 0) for name in named], np.uint32)
        of_chunks = [new[firsts.portions_in(one)] for one in weighed]
        np.save(folder / "portions.npy", np.concatenate(of_chunks), allow_pickle=False)


def _read(text: CorpusText, sizes: Sizes, spark: Spark) -> Any:
    """The RDD of the files' Chunks and FileEnds; passages stay on the workers' disks once read."""
    key = (dataclasses.replace(text, left_out=()), sizes)
    if key not in spark.held:
        spark.held[key] = spark.persisted(read_chunks(text, sizes, spark), "DISK_ONLY")
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
) -> tuple[list[Head], list[FileEnd]]:
    """The chunks and the ends of the files in corpus order; raises any problem of a file."""
    parts = raw.map(_head).collect()
    ends = sorted((end for end in parts if isinstance(end, FileEnd)), key=lambda end: end.file)
    left_out = [end for end in ends if end.no_text]
    for end in ends:
        if end.problem is not None:
            problem, line, remedy = end.problem
            error = DataError(problem, file=files[end.file].path, line=line, remedy=remedy)
            if not end.no_text or (len(left_out) == len(files) and end is left_out[-1]):
                raise error
            tracker.say(f"skipped in the corpus: {error}")
    heads = [head for head in parts if not isinstance(head, FileEnd)]
    return sorted(heads, key=lambda head: (head.file, head.place)), ends


def _head(part: Chunk | FileEnd) -> Head | FileEnd:
    if isinstance(part, FileEnd):
        return part
    return Head(part.file, part.place, len(part), part.licences)


class _Numbering:
    """Chunk as read → chunk without repeats, numbered."""

    def __init__(self, heads: Sequence[Head], first_bits: NDArray[np.uint8], spark: Spark) -> None:
        counts = np.array([head.passages for head in heads], np.int64)
        read = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        whole = np.unpackbits(first_bits, count=int(read[-1])).view(np.bool_)
        numbers = np.zeros(1, np.int64)
        if len(heads):
            numbers = np.cumsum([0, *np.add.reduceat(whole, read[:-1], dtype=np.int64)])
        bounds = zip(read[:-1].tolist(), read[1:].tolist(), numbers[:-1].tolist(), strict=True)
        places = {(head.file, head.place): own for head, own in zip(heads, bounds, strict=True)}
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
            self.text = _text_of(record)
            self.sizes = Sizes(**record["sizes"])
            self.heads: NDArray[np.int64] = load_array(
                folder / "chunks.npy", np.int64, dimensions=2
            )
            self._kept: NDArray[np.uint8] = load_array(folder / "kept.npy", np.uint8)
            self.files, self.portions = read_files(folder)
            read, kept_passages = int(self.heads[:, 2].sum()), int(self.heads[:, 3].sum())
            whole = kept_passages == self.counts["passages"] and len(self._kept) == -(-read // 8)
        if not whole:
            raise damaged(path, "the files of the corpus are inconsistent")
        self.folder, self.spark = folder, spark
        # says what is in it
        self.key = digest([record["counts"], record["files"], *self.text.settings])

    @property
    def local(self) -> None:
        """None: the texts are on the cluster."""
        return None

    @property
    def cluster(self) -> SparkStore:
        """This corpus."""
        return self

    def portions_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of passages among the portions."""
        path = self.folder / "portions.npy"
        if path.exists():
            return load_array(path, np.uint32, mapped=True)[numbers].astype(np.int64)
        of_file = {portion.file: place for place, portion in enumerate(self.portions)}
        chunks = np.searchsorted(np.cumsum(self.heads[:, 3]), numbers, side="right")
        places = [of_file.get(file, -1) for file in self.heads[:, 0].tolist()]
        return np.array(places, np.int64)[chunks]

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
            raw = _read(self.text, self.sizes, self.spark)
            rows = self.heads[:, :3].tolist()
            heads = [Head(file, place, passages) for file, place, passages in rows]
            numbering = _Numbering(heads, self._kept, self.spark)
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


def _text_of(record: Mapping[str, Any]) -> CorpusText:
    """How a store was read, from its record."""
    return CorpusText(
        tuple(CorpusFile(**file) for file in record["files"]),
        str(record["column"]),
        int(record["passage_words"]),
        str(record["licence_column"]),
        tuple(RowRule(tuple(rule["patterns"]), str(rule["otherwise"])) for rule in record["rules"]),
    )


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
                chunk.source(i),
            )
            for i in at
        ]
