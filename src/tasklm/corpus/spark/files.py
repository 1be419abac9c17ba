"""The corpus files that Spark can reach, and their passages in chunks, split by the same code as on
one machine.

A path without "://" is a local file that every worker sees at the same path (one machine, or a
shared disk); each is opened by the task that reads it. Any other path (hdfs://, s3a://, gs://,
file:// …) is read by Spark and passed, as a whole, to one task. One file is always read by one
task, from its first row to its last: this is what keeps the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.dedupe import text_key
from tasklm.corpus.file_reading import FileReading
from tasklm.corpus.licences import place_of
from tasklm.corpus.passages import counted_passages
from tasklm.corpus.portions import FileRead
from tasklm.corpus.sources import PLAIN, NoTextColumn, find_files, fingerprint
from tasklm.corpus.spark.session import Spark, spark_errors_are_clear
from tasklm.corpus.tables import TABLES, kind_of
from tasklm.errors import DataError
from tasklm.storage.files import digest
from tasklm.storage.scratch import Scratch

# bytes; the limit of Java's arrays, in which Spark passes a file
_LARGEST_REMOTE = (1 << 31) - (1 << 16)
_MOST_TASKS = 10_000


@dataclass(frozen=True)
class CorpusFile:
    """One file: its path or address, its size in bytes and when it was changed."""

    path: str
    size: int
    changed: int
    remote: bool


@dataclass(frozen=True)
class Sizes:
    """How much is handled at once; no result depends on it."""

    chunk_passages: int = 1 << 12
    chunk_bytes: int = 4 << 20
    shard_passages: int = 1 << 16  # passage numbers inside a block of the index are 16 bits wide
    shard_bytes: int = 64 << 20


@dataclass
class Chunk:
    """Consecutive passages of one file, in a form that travels well."""

    file: int
    place: int  # among the chunks of the file
    text: bytes  # the passages end to end, UTF-8
    bounds: NDArray[np.int64]  # [passages + 1]
    keys: NDArray[np.uint64]
    words: NDArray[np.int32]
    sources: tuple[tuple[str, str], ...]  # where rows say that they are from, and their licences
    source_of: NDArray[np.int32]
    start: int = -1  # number of the first passage, once duplicates are gone

    def __len__(self) -> int:
        return len(self.keys)

    def passage(self, i: int) -> str:
        """The text of the i-th passage of the chunk."""
        return self.text[self.bounds[i] : self.bounds[i + 1]].decode("utf-8")

    def source(self, i: int) -> str:
        """Where the i-th passage is from."""
        name, _ = self.sources[int(self.source_of[i])]
        return name

    @property
    def licences(self) -> tuple[str, ...]:
        """The licences of its passages, each once."""
        return tuple(sorted({licence for _, licence in self.sources}))

    def places_in(self, places: dict[tuple[int, str], int]) -> NDArray[np.int64]:
        """The place of each passage's (file, licence)."""
        of_source = [places[self.file, licence] for _, licence in self.sources]
        return np.array(of_source, np.int64)[self.source_of]

    def texts(self) -> list[str]:
        """The texts of all its passages."""
        return [self.passage(i) for i in range(len(self))]

    def numbered(self, first_ones: NDArray[np.bool_], start: int) -> Chunk:
        """The passages that are the first with their text, numbered from `start` on."""
        if first_ones.all():
            return replace(self, start=start)
        places = np.flatnonzero(first_ones)
        lengths = np.diff(self.bounds)[places]
        text = b"".join(self.text[self.bounds[i] : self.bounds[i + 1]] for i in places)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return replace(
            self,
            text=text,
            bounds=bounds,
            keys=self.keys[places],
            words=self.words[places],
            source_of=self.source_of[places],
            start=start,
        )


@dataclass
class FileEnd:
    """The counts of a file, and its problem, if any."""

    file: int
    about: FileRead
    counts: dict[str, int]
    problem: tuple[str, int | None, str] | None = None  # what, line, remedy
    no_text: bool = False  # a table without a column of text, which may be left out


def list_files(paths: Sequence[str], spark: Spark) -> list[CorpusFile]:
    """The files that paths, folders and globs name, sorted by path, each once."""
    files: dict[str, CorpusFile] = {}
    for path in find_files([path for path in paths if "://" not in path]):
        stat = path.stat()
        place = str(place_of(path))
        files[place] = CorpusFile(str(path.absolute()), stat.st_size, stat.st_mtime_ns, False)
    for pattern in paths:
        if "://" in pattern:
            for file in _remote_files(pattern, spark):
                files[file.path] = file
    return [files[name] for name in sorted(files)]


def files_key(files: Sequence[CorpusFile]) -> str:
    """A hash that changes with the files: of names, sizes and times of change, and of some content
    where it is near.
    """
    near = [Path(file.path) for file in files if not file.remote]
    return digest(
        [fingerprint(near), [(file.path, file.size, file.changed) for file in files if file.remote]]
    )


def _remote_files(pattern: str, spark: Spark) -> Iterator[CorpusFile]:
    context = spark.context
    try:
        with spark_errors_are_clear():
            path = context._jvm.org.apache.hadoop.fs.Path(pattern)
            system = path.getFileSystem(context._jsc.hadoopConfiguration())
            statuses: list[Any] = []
            for match in system.globStatus(path) or ():
                statuses += _inside(system, match, pattern)
            files = [
                CorpusFile(str(s.getPath().toString()), s.getLen(), s.getModificationTime(), True)
                for s in statuses
            ]
    except Exception as error:
        raise DataError(
            f"the path cannot be listed ({error})",
            file=pattern,
            remedy="Check the address and Spark's access to it.",
        ) from None
    if not files:
        raise DataError(
            "no text files found there",
            file=pattern,
            remedy=f"Name files with {', '.join(PLAIN + TABLES)}.",
        )
    for file in files:
        if file.size > _LARGEST_REMOTE:
            raise DataError(
                f"the file has {file.size / 2**30:.1f} GiB, "
                "but Spark reads whole files of at most 2 GiB",
                file=file.path,
                remedy=(
                    "Split it, or put it on a disk that all "
                    "workers mount and name its path without '://'."
                ),
            )
        if any(mark in file.path for mark in ",{}[]*?\\"):
            raise DataError(
                "the name contains one of , { } [ ] * ? \\",
                file=file.path,
                remedy="Rename the file.",
            )
    yield from files


def _inside(system: Any, status: Any, pattern: str) -> Iterator[Any]:
    """Yields a file, or the readable ones of a folder; a file given by its full name is taken
    whatever its suffix.
    """
    if status.isFile():
        is_glob = any(mark in pattern for mark in "*?[{")
        if not is_glob or _readable(str(status.getPath().getName())):
            yield status
        return
    root = str(status.getPath().toString())
    inside = system.listFiles(status.getPath(), True)
    while inside.hasNext():
        file = inside.next()
        relative = PurePosixPath(str(file.getPath().toString()).removeprefix(root).lstrip("/"))
        if not any(part.startswith(".") for part in relative.parts) and _readable(relative.name):
            yield file


def _readable(name: str) -> bool:
    return kind_of(Path(name)) in PLAIN + TABLES and not name.startswith(".")


def read_chunks(text: CorpusText, sizes: Sizes, spark: Spark) -> Any:
    """An RDD of the files' Chunks, in order inside each file, and a FileEnd after the last of each
    file.
    """
    files: Sequence[CorpusFile] = text.files
    read = partial(_file_chunks, text=replace(text, files=(), left_out=()), sizes=sizes)
    context = spark.context
    near = [(number, file.path) for number, file in enumerate(files) if not file.remote]
    far = {file.path: number for number, file in enumerate(files) if file.remote}
    parts = []
    if near:
        entries = context.parallelize(near, min(len(near), _MOST_TASKS))
        parts.append(entries.flatMap(partial(_near_file, read=read)))
    if far:
        whole = context.binaryFiles(",".join(far), min(len(far), _MOST_TASKS))
        parts.append(whole.flatMap(partial(_far_file, numbers=context.broadcast(far), read=read)))
    if len(parts) == 1:
        return parts[0]
    return context.union(parts)


def _near_file(entry: tuple[int, str], read: Any) -> Iterator[Chunk | FileEnd]:
    number, path = entry
    yield from read(number, Path(path))


def _far_file(entry: tuple[str, bytes], numbers: Any, read: Any) -> Iterator[Chunk | FileEnd]:
    address, content = entry
    with Scratch() as folder:
        path = folder / PurePosixPath(address).name
        path.write_bytes(content)
        del content
        yield from read(numbers.value[address], path)


def _file_chunks(
    number: int, path: Path, *, text: CorpusText, sizes: Sizes
) -> Iterator[Chunk | FileEnd]:
    reading = FileReading(path, text, number, lambda size: None)
    held, place = _Held(), 0
    problem: tuple[str, int | None, str] | None = None
    no_text = False
    try:
        for document in reading:
            some = False
            for passage, word_count in counted_passages(document.text, text.passage_words):
                held.add(passage, word_count, (document.source, document.licence))
                some = True
                if len(held.keys) == sizes.chunk_passages or len(held.text) >= sizes.chunk_bytes:
                    yield held.chunk(number, place)
                    held, place = _Held(), place + 1
            reading.counts["empty"] += not some
    except DataError as error:
        problem = (error.problem, error.line, error.remedy)
        no_text = isinstance(error, NoTextColumn)
    if held.keys:
        yield held.chunk(number, place)
    yield FileEnd(number, reading.about(), dict(reading.counts), problem, no_text)


@dataclass
class _Held:
    """Passages that wait until there are enough for a chunk."""

    text: bytearray = field(default_factory=bytearray)
    bounds: list[int] = field(default_factory=lambda: [0])
    keys: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    sources: dict[tuple[str, str], int] = field(default_factory=dict)
    source_of: list[int] = field(default_factory=list)

    def add(self, text: str, word_count: int, source: tuple[str, str]) -> None:
        self.text += text.encode("utf-8", "replace")
        self.bounds.append(len(self.text))
        self.keys.append(text_key(text))
        self.words.append(word_count)
        self.source_of.append(self.sources.setdefault(source, len(self.sources)))

    def chunk(self, file: int, place: int) -> Chunk:
        return Chunk(
            file,
            place,
            bytes(self.text),
            np.array(self.bounds, np.int64),
            np.array(self.keys, np.uint64),
            np.array(self.words, np.int32),
            tuple(self.sources),
            np.array(self.source_of, np.int32),
        )


def only_chunks(parts: Iterable[Chunk | FileEnd]) -> Iterator[Chunk]:
    """Yields the chunks."""
    return (part for part in parts if isinstance(part, Chunk))
