"""Writes the files of a passage store, piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.kernels import KeySet
from tasklm.corpus.passages import counted_passages
from tasklm.corpus.portions import (
    AT_ONCE,
    FileRead,
    Repeats,
    counted,
    portions_from,
    write_files,
)
from tasklm.corpus.sources import Document
from tasklm.errors import RunError
from tasklm.storage.files import write_json

# if each document has its own source, further ones count under their file's name
MOST_SOURCES = 100_000


class ArrayFile:
    """A one-dimensional npy file written piece by piece: its header has room for a length that is
    known at the end.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self._file: BinaryIO = path.open("wb")
        self._dtype, self._count = np.dtype(dtype), 0
        self._header()

    def _header(self) -> None:
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": self._dtype.str, "fortran_order": False, "shape": (self._count,)}
        )

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(values.astype(self._dtype).tobytes())
        self._count += values.size

    def close(self, whole: bool) -> None:
        """Closes the file, with the length in its header if it was written completely."""
        with self._file:
            if whole:
                self._finish()

    def _finish(self) -> None:
        begin = self._file.tell() - self._count * self._dtype.itemsize
        self._file.seek(0)
        self._header()
        if self._file.tell() != begin:
            raise RunError("the header of an array changed its size; please report this")


class CutDocuments(NamedTuple):
    """The passages of some documents, end to end."""

    text: bytes
    lengths: NDArray[np.int64]  # [passages] bytes
    keys: NDArray[np.uint64]  # [passages]
    words: NDArray[np.int64]  # [passages]
    of_document: NDArray[np.int64]  # [documents] passages


def cut_documents(passage_words: int, documents: Sequence[str]) -> CutDocuments:
    """Splits documents into passages: most of the work of reading a corpus."""
    texts: list[bytes] = []
    keys: list[int] = []
    word_counts: list[int] = []
    of_document: list[int] = []
    for document in documents:
        before = len(texts)
        for text, word_count in counted_passages(document, passage_words):
            texts.append(text.encode("utf-8", "replace"))
            keys.append(text_key(text))
            word_counts.append(word_count)
        of_document.append(len(texts) - before)
    lengths, words, passages = (
        np.array(numbers, np.int64) for numbers in (list(map(len, texts)), word_counts, of_document)
    )
    return CutDocuments(b"".join(texts), lengths, np.array(keys, np.uint64), words, passages)


class StoreWriter:
    """Writes passages, except repeated ones, and what they were read from."""

    def __init__(self, folder: Path, counts: Counter[str]) -> None:
        self._folder, self.counts = folder, counts
        self.files: list[FileRead] = []  # those read to their ends
        self._seen = KeySet()
        self._sources: dict[tuple[int, str, str], int] = {}
        self._portions: dict[tuple[int, str], int] = {}
        self._portion_of: list[int] = []  # of each source
        self._file_of: list[int] = []  # of each source
        self._passages: Counter[int] = Counter()  # that each portion owns
        self._repeats_of: Counter[int] = Counter()
        self._empty: Counter[int] = Counter()  # documents of each file without words
        self._repeats = Repeats()
        self._text: BinaryIO = (folder / "text.bin").open("wb")
        self._offsets, self._ids, self._origins = (
            ArrayFile(folder / name, dtype)
            for name, dtype in (("offsets.npy", "<i8"), ("ids.npy", "<u8"), ("sources.npy", "<u4"))
        )
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def source(self, document: Document, file: int) -> int:
        """The number of the source of a document, which is in the file with this number."""
        source = file, document.source, document.licence
        if source not in self._sources and len(self._sources) >= MOST_SOURCES:
            source = file, "", document.licence
        if source not in self._sources:
            self._sources[source] = len(self._sources)
            portion = file, document.licence
            self._portion_of.append(self._portions.setdefault(portion, len(self._portions)))
            self._file_of.append(file)
        return self._sources[source]

    def add(self, cut: CutDocuments, sources: Sequence[int]) -> None:
        """Writes the passages of documents that have these sources."""
        fresh = self._seen.add(cut.keys)
        text = cut.text
        if not fresh.all():
            ends = np.cumsum(cut.lengths)
            text = b"".join(
                cut.text[end - size : end]
                for end, size in zip(ends[fresh].tolist(), cut.lengths[fresh].tolist(), strict=True)
            )
        self._text.write(text)
        self._offsets.append(self.counts["bytes"] + np.cumsum(cut.lengths[fresh]))
        self._ids.append(cut.keys[fresh])
        self._origins.append(np.repeat(np.array(sources, np.uint32), cut.of_document)[fresh])
        self._count(cut, fresh, sources)

    def _count(self, cut: CutDocuments, fresh: NDArray[np.bool_], sources: Sequence[int]) -> None:
        self.counts["bytes"] += int(cut.lengths[fresh].sum())
        self.counts["words"] += int(cut.words[fresh].sum())
        self.counts["passages"] += int(fresh.sum())
        self.counts["duplicates"] += int((~fresh).sum())
        self.counts["empty"] += int((cut.of_document == 0).sum())  # marks without words
        files = np.array([self._file_of[source] for source in sources], np.uint32)
        own = np.array([self._portion_of[source] for source in sources], np.int64)
        portions = np.repeat(own, cut.of_document)
        self._passages += counted(portions[fresh])
        self._repeats_of += counted(portions[~fresh])
        self._empty += counted(files[cut.of_document == 0])
        self._repeats.add(cut.keys[~fresh], np.repeat(files, cut.of_document)[~fresh])

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._text.close()
        for column in (self._offsets, self._ids, self._origins):
            column.close(whole=error is None)
        if error is None:
            self._write_sources()

    def _write_sources(self) -> None:
        """Writes the sources and the files, with how many passages stand in several."""
        named = list(self._portions)
        places = np.array([file for file, _ in named], np.int64)
        elsewhere = self._repeats.owners(self._kept_keys(), places)
        files = [
            replace(file, empty=file.empty + self._empty[number])
            for number, file in enumerate(self.files)
        ]
        portions = portions_from(named, self._passages, self._repeats_of, elsewhere)
        names = [
            (file, name or self.files[file].name, licence) for file, name, licence in self._sources
        ]
        write_json(self._folder / "sources.json", names)
        write_files(self._folder, files, portions)

    def _kept_keys(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Yields the keys of the passages written so far, with their portions."""
        portion_of = np.array(self._portion_of, np.int64)
        keys, origins = (
            np.load(self._folder / name, mmap_mode="r", allow_pickle=False)
            for name in ("ids.npy", "sources.npy")
        )
        for start in range(0, len(keys), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            yield np.asarray(keys[part]), portion_of[np.asarray(origins[part])]
