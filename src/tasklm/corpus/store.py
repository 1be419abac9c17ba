"""The corpus on disk: passages cut, deduplicated and numbered once, then read through memory maps by every later step.

text.bin      the passages, UTF-8, one after another
offsets.npy   int64, where each begins; one more for the end
ids.npy       uint64, `text_key` of each: the same text has the same id in every corpus
sources.npy   uint32, places in sources.json
store.json    format and counts; written last
"""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.kernels import KeySet
from tasklm.corpus.passages import counted_passages
from tasklm.corpus.sources import Document, NoTextColumn, find_files, fingerprint, read_documents
from tasklm.errors import DataError, RunError
from tasklm.runs import Artefacts, digest, read_json, write_json
from tasklm.tracking import Bar, Tracker

FORMAT = 1
_BATCH = 2048  # passages checked and written at once
_MOST_SOURCES = 100_000  # where each document names a source of its own, further ones count under their file's name


def corpus_key(files: Sequence[Path], column: str, passage_words: int) -> str:
    """Returns the key of the store that these files and settings make."""
    return digest(["corpus", FORMAT, fingerprint(files), column, passage_words])


class _Column:
    """A one-dimensional npy file written piece by piece: its header has room for a length that is known at the end."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file: BinaryIO = path.open("wb")
        self._dtype, self._count = np.dtype(dtype), 0
        self._header()

    def _header(self) -> None:
        np.lib.format.write_array_header_1_0(self._file, {"descr": self._dtype.str, "fortran_order": False, "shape": (self._count,)})

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(values.astype(self._dtype).tobytes())
        self._count += values.size

    def close(self, whole: bool) -> None:
        """Closes the file, with the length in its header where it was written to its end."""
        with self._file:
            if whole:
                self._finish()

    def _finish(self) -> None:
        begin = self._file.tell() - self._count * self._dtype.itemsize
        self._file.seek(0)
        self._header()
        if self._file.tell() != begin:
            raise RunError("the header of an array changed its size; please report this")


class _Writer:
    """Collects passages, leaves out those that were there before, and writes the rest in batches."""

    def __init__(self, folder: Path, counts: Counter[str]) -> None:
        self._folder, self.counts = folder, counts
        self._seen = KeySet()
        self._sources: dict[str, int] = {}
        self._held: list[tuple[bytes, int, int, int]] = []  # text, key, source, words
        self._text: BinaryIO = (folder / "text.bin").open("wb")
        self._offsets, self._ids, self._origins = (
            _Column(folder / name, dtype) for name, dtype in (("offsets.npy", "<i8"), ("ids.npy", "<u8"), ("sources.npy", "<u4"))
        )
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def add(self, text: str, word_count: int, source: int) -> None:
        self._held.append((text.encode("utf-8", "replace"), text_key(text), source, word_count))
        if len(self._held) == _BATCH:
            self.flush()

    def source(self, name: str, file: str) -> int:
        """Returns the number of a source."""
        if name not in self._sources and len(self._sources) >= _MOST_SOURCES:
            name = file
        return self._sources.setdefault(name, len(self._sources))

    def flush(self) -> None:
        if not self._held:
            return
        fresh = self._seen.add(np.array([key for _, key, _, _ in self._held], dtype=np.uint64))
        kept = [held for held, new in zip(self._held, fresh, strict=True) if new]
        ends = self.counts["bytes"] + np.cumsum([len(text) for text, _, _, _ in kept], dtype=np.int64)
        self._text.write(b"".join(text for text, _, _, _ in kept))
        self._offsets.append(ends)
        self._ids.append(np.array([key for _, key, _, _ in kept], dtype=np.uint64))
        self._origins.append(np.array([source for _, _, source, _ in kept], dtype=np.uint32))
        self.counts["bytes"] += sum(len(text) for text, _, _, _ in kept)
        self.counts["words"] += sum(count for _, _, _, count in kept)
        self.counts["passages"] += len(kept)
        self.counts["duplicates"] += len(self._held) - len(kept)
        self._held.clear()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._text:
            if error is None:
                self.flush()
        for column in (self._offsets, self._ids, self._origins):
            column.close(whole=error is None)
        if error is None:
            write_json(self._folder / "sources.json", list(self._sources))


def kept_store(paths: Sequence[str], column: str, passage_words: int, cache: Artefacts, tracker: Tracker) -> tuple[PassageStore, str, str]:
    """Returns the passages of a corpus, built in the cache unless they are there, with their key and their name in it."""
    files = find_files(paths)
    key = corpus_key(files, column, passage_words)
    name = f"corpus-{key}"
    folder = cache.build(name, key, lambda part: build_store(part, files, column, passage_words, tracker))
    return PassageStore.open(folder), key, name


def build_store(folder: Path, files: Sequence[Path], column: str, passage_words: int, tracker: Tracker) -> None:
    """Writes the passages of the files to the folder, each text once; starts over whatever is there.

    Memory: 11-23 bytes per passage for the set of keys, a batch of passages, and the longest document.
    """
    counts = Counter({name: 0 for name in ("documents", "passages", "duplicates", "empty", "words", "bytes")})
    (folder / "store.json").unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in files)
    with _Writer(folder, counts) as writer, tracker.progress("reading the corpus", size) as bar:
        for document, path in _documents(files, column, counts, tracker, bar):
            source = writer.source(document.source, path.name)
            held = False
            for text, word_count in counted_passages(document.text, passage_words):
                writer.add(text, word_count, source)
                held = True
            counts["empty"] += not held  # marks without words
    if not counts["passages"]:
        raise DataError(
            "the corpus has no text",
            file=", ".join(map(str, files[:3])),
            remedy=("Name other files, or the column with the text with --corpus-column (recipe: data.corpus_column)."),
        )
    tracker.event("corpus", **counts)
    write_json(folder / "store.json", {"format": FORMAT, "counts": dict(counts)})


def _documents(files: Sequence[Path], column: str, counts: Counter[str], tracker: Tracker, bar: Bar) -> Iterator[tuple[Document, Path]]:
    started = time.monotonic()

    def advance(size: int) -> None:
        seconds = max(time.monotonic() - started, 1e-9)
        bar.advance(size, f"{counts['passages']:,} passages, {counts['passages'] / seconds:,.0f}/s")

    no_text: list[NoTextColumn] = []
    for path in files:
        try:
            yield from ((document, path) for document in read_documents(path, column, counts=counts, watch=advance))
        except NoTextColumn as error:
            no_text.append(error)
            if len(no_text) == len(files):
                raise
            # a list or an index beside the corpus; were it the corpus, nothing would be left and the error raised
            tracker.say(f"left out of the corpus: {error}")


class PassageStore:
    """The passages of a corpus, read from disk when asked for."""

    def __init__(self, folder: Path, counts: dict[str, int]) -> None:
        self.folder, self.counts = folder, counts
        self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
        self._ids: NDArray[np.uint64] = np.load(folder / "ids.npy", mmap_mode="r")
        self._origins: NDArray[np.uint32] = np.load(folder / "sources.npy", mmap_mode="r")
        self._sources: list[str] = read_json(folder / "sources.json")
        # read, not mapped: pages of a map that was scanned would count as this process's memory
        self._text = os.open(folder / "text.bin", os.O_RDONLY)
        weakref.finalize(self, os.close, self._text)

    @classmethod
    def open(cls, folder: Path) -> PassageStore:
        """Returns the store in the folder; one of another format, or a damaged one, is refused."""
        again = "Delete this folder and run the same command again: it is made anew from the corpus."
        try:
            record = read_json(folder / "store.json")
            if record["format"] != FORMAT:
                raise RunError(
                    f"{folder} was written by another version of tasklm (format {record['format']}, this one reads {FORMAT}). {again}"
                )
            store = cls(folder, dict(record["counts"]))
            ends = (len(store._offsets) - 1, len(store._ids), len(store._origins), store.counts["passages"])
            whole = len(set(ends)) == 1 and int(store._offsets[-1]) == os.fstat(store._text).st_size
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            raise RunError(f"{folder} holds no corpus, or a damaged one. {again}") from None
        if not whole:
            raise RunError(f"{folder} holds a damaged corpus: its files do not fit together. {again}")
        return store

    def __len__(self) -> int:
        return len(self._ids)

    def text(self, i: int) -> str:
        """Returns passage i."""
        return self.texts(i, i + 1)[0]

    def texts(self, start: int, stop: int) -> list[str]:
        """Returns the passages from `start` up to `stop`, read in one go."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"passages {start} to {stop} of {len(self)}")
        block, bounds = self.raw(start, stop)
        return [block[a:b].decode("utf-8") for a, b in pairwise(bounds.tolist())]

    def raw(self, start: int, stop: int) -> tuple[bytearray, NDArray[np.int64]]:
        """Returns the passages from `start` up to `stop` end to end as UTF-8, and where each begins and the last ends."""
        bounds = np.array(self._offsets[start : stop + 1])
        block = bytearray(int(bounds[-1] - bounds[0]))
        read = 0
        while read < len(block):  # the system hands out 2 GiB at a time at most
            part = os.preadv(self._text, [memoryview(block)[read:]], int(bounds[0]) + read)
            if not part:
                raise RunError(f"{self.folder} was cut off while it was read. Delete it and run the same command again.")
            read += part
        return block, bounds - bounds[0]

    def ids(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Returns the ids of the passages from `start` up to `stop` as numbers."""
        return np.asarray(self._ids[start:stop])

    def bytes_up_to(self, i: int) -> int:
        """Returns how many bytes of text stand before passage i."""
        return int(self._offsets[i])

    def sample(self) -> list[str]:
        """Returns the texts of 2,000 passages drawn at random, the same at each call."""
        return [self.text(int(i)) for i in np.random.default_rng(0).integers(0, len(self), 2000)]

    def id(self, i: int) -> str:
        """Returns the passage's stable id, 16 hexadecimal digits: a hash of its text."""
        return f"{int(self._ids[i]):016x}"

    def source(self, i: int) -> str:
        """Returns where the passage is from."""
        return self._sources[int(self._origins[i])]
