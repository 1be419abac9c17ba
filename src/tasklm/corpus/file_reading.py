"""The documents of a file of a corpus, and the hash of the very bytes that were read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.licences import RowLicences
from tasklm.corpus.portions import FileRead
from tasklm.corpus.sources import Document, read_documents
from tasklm.corpus.streams import open_binary
from tasklm.errors import DataError


class FileReading:
    """A file of a corpus while it is read; `advance` gets the number of bytes each time."""

    def __init__(
        self, path: Path, text: CorpusText, number: int, advance: Callable[[int], object]
    ) -> None:
        self.path, self._column = path, text.column
        self.counts = Counter(documents=0, empty=0)
        self._licences = RowLicences(text.licence_column, text.rule(number))
        self._advance, self._hasher = advance, hashlib.sha256()
        self._before, self._bytes, self._sha256 = (0, 0), 0, ""

    def __iter__(self) -> Iterator[Document]:
        self._before = _state(self.path)
        yield from read_documents(
            self.path,
            self._column,
            counts=self.counts,
            watch=self._take,
            licences=self._licences,
        )
        if self._before != _state(self.path) or self._bytes != self._before[0]:
            raise DataError(
                "the file changed while it was read",
                file=self.path,
                remedy="Wait until it is complete, and run the same command again.",
            )
        self._sha256 = self._hasher.hexdigest()

    def _take(self, block: memoryview) -> None:
        self._hasher.update(block)
        self._bytes += len(block)
        self._advance(len(block))

    def about(self) -> FileRead:
        """What was read; a file that was not read to its end counts as skipped."""
        return FileRead(
            self.path.name,
            self._before[0],
            self._sha256,
            documents=self.counts["documents"],
            empty=self.counts["empty"],
            left_out=self.counts["left out"],
            licence_column=self._licences.column,
            skipped=not self._sha256,
        )


def _state(path: Path) -> tuple[int, int]:
    with open_binary(path):  # which says what is wrong with it
        about = path.stat()
        return about.st_size, about.st_mtime_ns
