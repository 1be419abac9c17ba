"""Writes the files of a passage store, piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.kernels import KeySet
from tasklm.corpus.passages import counted_passages
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
    """Writes passages, except repeated ones."""

    def __init__(self, folder: Path, counts: Counter[str]) -> None:
        self._folder, self.counts = folder, counts
        self._seen = KeySet()
        self._sources: dict[str, int] = {}
        self._text: BinaryIO = (folder / "text.bin").open("wb")
        self._offsets, self._ids, self._origins = (
            ArrayFile(folder / name, dtype)
            for name, dtype in (("offsets.npy", "<i8"), ("ids.npy", "<u8"), ("sources.npy", "<u4"))
        )
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def source(self, name: str, file: str) -> int:
        """The number of a source."""
        if name not in self._sources and len(self._sources) >= MOST_SOURCES:
            name = file
        return self._sources.setdefault(name, len(self._sources))

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
        self.counts["bytes"] += len(text)
        self.counts["words"] += int(cut.words[fresh].sum())
        self.counts["passages"] += int(fresh.sum())
        self.counts["duplicates"] += int((~fresh).sum())
        self.counts["empty"] += int((cut.of_document == 0).sum())  # marks without words

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._text.close()
        for column in (self._offsets, self._ids, self._origins):
            column.close(whole=error is None)
        if error is None:
            write_json(self._folder / "sources.json", list(self._sources))
