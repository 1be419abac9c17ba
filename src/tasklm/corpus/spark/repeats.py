"""Repeated passages of a corpus on a cluster: which are the first with their texts, and which stand
in several files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.portions import counted
from tasklm.corpus.spark.files import Chunk, FileEnd, only_chunks
from tasklm.corpus.spark.session import Spark

_KEYS_AT_ONCE = 1 << 20  # keys that a task holds before it sends them on
_BUCKET_KEYS = 4 << 20  # keys that one task of the search for repeats sorts


@dataclass(frozen=True)
class Head:
    """What a chunk holds as it is read: its place in the corpus, and how many passages."""

    file: int
    place: int
    passages: int
    licences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weighed:
    """What a chunk holds without repeats."""

    file: int
    place: int
    passages: int
    bytes: int
    words: int
    licences: tuple[str, ...]
    licence_of: NDArray[np.uint16] | None  # of each passage, where it has several


def weigh(chunk: Chunk) -> Weighed:
    """What a chunk without repeats holds."""
    words = int(chunk.words.sum(dtype=np.int64))
    licences, licence_of = chunk.licences, None
    if len(licences) > 1:
        places = {(chunk.file, licence): at for at, licence in enumerate(licences)}
        licence_of = chunk.places_in(places).astype(np.uint16)
    return Weighed(
        chunk.file, chunk.place, len(chunk), len(chunk.text), words, licences, licence_of
    )


@dataclass
class FirstOnes:
    """For each passage read whether it is the first with its text, and what that makes of the
    portions, which are numbered by `places`.
    """

    places: dict[tuple[int, str], int]  # (file, licence) → portion
    ones: NDArray[np.bool_]
    repeats: Counter[int]
    elsewhere: Counter[int]

    def portions_in(self, chunk: Weighed) -> NDArray[np.int64]:
        """The portions of the passages of a chunk."""
        own = np.array([self.places[chunk.file, one] for one in chunk.licences], np.int64)
        if chunk.licence_of is None:
            return np.repeat(own, chunk.passages)
        return own[chunk.licence_of]


def first_ones(raw: Any, heads: Sequence[Head], spark: Spark) -> FirstOnes:
    """Which passages are the first with their texts.

    Keys meet in buckets, each sorted by one task; only the places of repeats come back.
    """
    read = sum(head.passages for head in heads)
    names = sorted({(head.file, licence) for head in heads for licence in head.licences})
    firsts = FirstOnes(
        {name: at for at, name in enumerate(names)}, np.ones(read, np.bool_), Counter(), Counter()
    )
    known = spark.context.broadcast((_starts(heads), firsts.places))
    buckets = max(1, min(-(-read // _BUCKET_KEYS), 1 << 16))
    keyed = raw.mapPartitions(partial(_keys_by_bucket, known=known, buckets=buckets))
    file_of = np.array([file for file, _ in names], np.int64)
    by_bucket = keyed.partitionBy(buckets, int)
    results = by_bucket.mapPartitions(partial(_repeats, file_of=file_of)).collect()
    for repeats, portions, owners in results:
        firsts.ones[repeats] = False
        firsts.repeats += counted(portions)
        firsts.elsewhere += counted(owners)
    known.unpersist()
    return firsts


def _starts(heads: Sequence[Head]) -> dict[tuple[int, int], int]:
    starts, at = {}, 0
    for head in heads:
        starts[head.file, head.place] = at
        at += head.passages
    return starts


def _keys_by_bucket(
    parts: Iterable[Chunk | FileEnd], known: Any, buckets: int
) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    held: list[NDArray[np.uint64]] = []
    size = 0
    starts, places = known.value
    for chunk in only_chunks(parts):
        start = starts[chunk.file, chunk.place]
        numbers = np.arange(start, start + len(chunk), dtype=np.uint64)
        held.append(np.stack([chunk.keys, numbers, chunk.places_in(places).astype(np.uint64)]))
        size += len(chunk)
        if size >= _KEYS_AT_ONCE:
            yield from _bucketed(held, buckets)
            held, size = [], 0
    if held:
        yield from _bucketed(held, buckets)


def _bucketed(
    held: Sequence[NDArray[np.uint64]], buckets: int
) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    entries = np.concatenate(held, axis=1)
    bucket_of = (entries[0] % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(bucket_of, kind="stable")
    bounds = np.searchsorted(bucket_of[order], np.arange(buckets + 1))
    for bucket in np.unique(bucket_of).tolist():
        yield bucket, np.ascontiguousarray(entries[:, order[bounds[bucket] : bounds[bucket + 1]]])


def _repeats(
    entries: Iterable[tuple[int, NDArray[np.uint64]]], file_of: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yields the numbers of the passages of a bucket whose text an earlier one has, their portions,
    and the portions of those earlier ones that stand in several files.
    """
    arrays = [own for _, own in entries]
    if not arrays:
        return
    keys, numbers, portions = np.concatenate(arrays, axis=1)
    order = np.lexsort((numbers, keys))
    again = np.append(False, keys[order[1:]] == keys[order[:-1]])
    numbers, portions = numbers[order].astype(np.int64), portions[order].astype(np.int64)
    first = np.flatnonzero(~again)[np.cumsum(~again) - 1]  # of the passages with the same text
    elsewhere = np.unique(first[file_of[portions] != file_of[portions[first]]])
    yield numbers[again], portions[again], portions[elsewhere]
