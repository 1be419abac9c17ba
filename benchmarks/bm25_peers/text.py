"""The text that every engine gets: windows of a corpus's documents, as words that are split and
folded already.

words-KEY.txt       the corpus: one document per line, its words joined by single spaces
SIZE-KEY/           a data set: passages.txt (one per line), store/ (the same as a tasklm store), queries-N.txt
SIZE-KEY/warm/      a few of its passages in the same form, on which engines compile before the clock runs
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.portions import FileRead, Portion, write_files
from tasklm.corpus.sources import NoTextColumn, find_files, fingerprint, read_documents
from tasklm.corpus.store import FORMAT
from tasklm.corpus.words import words
from tasklm.errors import DataError
from tasklm.storage.files import digest, read_json, write_json

SHORTEST, LONGEST = 57, 137  # words of a passage, 97 in the middle
LONGEST_WORD = (
    60  # characters; longer ones are left out, so that no engine's limit for words plays a part
)
WARM_PASSAGES = 300
_HELD_OUT = 0.05  # share of the documents that only queries are cut from
_MOST_BYTES = (
    1 << 30
)  # of words read from a corpus; what comes after is left out, so that memory is bounded
_WRITTEN_AT_ONCE = 4096


@dataclass(frozen=True)
class DataSet:
    """Passages and queries on disk."""

    folder: Path
    passages: int
    words: int
    bytes: int

    @property
    def text(self) -> Path:
        """The file with one passage per line."""
        return self.folder / "passages.txt"

    @property
    def store(self) -> Path:
        """The folder of the tasklm store with the same passages."""
        return self.folder / "store"

    def query_file(self, length: int) -> Path:
        """The file with one query of `length` words per line."""
        return self.folder / f"queries-{length}.txt"

    def queries(self, length: int) -> list[list[str]]:
        """The queries of `length` words as lists of words."""
        return [
            line.split()
            for line in self.query_file(length).read_text(encoding="utf-8").splitlines()
        ]

    def lines(self) -> Iterator[str]:
        """Yields the passages."""
        with self.text.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")

    @property
    def warm(self) -> DataSet:
        """The small data set on which engines compile."""
        return open_data(self.folder / "warm")


def open_data(folder: Path) -> DataSet:
    """The data set in the folder."""
    return DataSet(folder, **read_json(folder / "data.json"))


class Words:
    """All words of a corpus in one array of bytes, with the places where
    words and documents end.
    """

    def __init__(self, path: Path) -> None:
        self.buffer = np.fromfile(path, np.uint8)
        self.ends: NDArray[Any] = np.flatnonzero(self.buffer <= 32).astype(
            np.uint32 if len(self.buffer) < 1 << 32 else np.uint64
        )
        document_ends = np.flatnonzero(self.buffer[self.ends] == 10) + 1
        self.bounds = np.concatenate([np.zeros(1, np.int64), document_ends])  # in words

    def window(self, start: int, length: int) -> bytes:
        """Returns `length` words from word `start` on, joined by spaces."""
        begin = int(self.ends[start - 1]) + 1 if start else 0
        return self.buffer[begin : int(self.ends[start + length - 1])].tobytes()

    def draw(
        self, documents: NDArray[np.int64], lengths: tuple[int, int], count: int, seed: list[int]
    ) -> NDArray[np.int64]:
        """Returns `count` different windows [start, length] at random places of the documents, each
        inside one document.
        """
        sizes = self.bounds[documents + 1] - self.bounds[documents]
        documents, sizes = documents[sizes >= lengths[0]], sizes[sizes >= lengths[0]]
        ends, generator = np.cumsum(sizes), np.random.default_rng(seed)
        found: NDArray[np.int64] = np.empty((0, 2), np.int64)
        for _ in range(20):
            if not len(documents):
                break
            place = generator.integers(0, ends[-1], count + count // 8 + 100)
            document = np.searchsorted(ends, place, side="right")
            length = np.minimum(
                generator.integers(lengths[0], lengths[1] + 1, len(place)), sizes[document]
            )
            inside = np.minimum(
                place - (ends[document] - sizes[document]), sizes[document] - length
            )
            found = np.concatenate(
                [found, np.stack([self.bounds[documents[document]] + inside, length], axis=1)]
            )
            _, first = np.unique(found[:, 0] * (lengths[1] + 1) + found[:, 1], return_index=True)
            found = found[np.sort(first)[:count]]
            if len(found) == count:
                return found
        raise DataError(
            f"there are fewer than {count:,} different windows of {lengths[0]} words or more",
            file="the corpus",
            remedy="Ask for fewer passages or queries, or name a larger corpus with --corpus.",
        )


def corpus_words(corpus: Path, work: Path) -> Path:
    """The file with the corpus's documents as words, written unless it is there."""
    files = find_files([str(corpus)])
    path = work / f"words-{digest(['words', fingerprint(files), LONGEST_WORD, _MOST_BYTES])}.txt"
    if path.exists():
        return path
    partial, size = path.with_suffix(".partial"), 0
    with partial.open("wb") as out:
        for line in _document_lines(files):
            out.write(line)
            size += len(line)
            if size >= _MOST_BYTES:
                break
    partial.replace(path)
    return path


def _document_lines(files: list[Path]) -> Iterator[bytes]:
    readable = 0
    for path in files:
        try:
            for document in read_documents(path):
                found = [word for word in words(document.text) if len(word) <= LONGEST_WORD]
                if found:
                    yield " ".join(found).encode() + b"\n"
            readable += 1
        except NoTextColumn:
            if path == files[-1] and not readable:
                raise
            print(f"left out of the corpus: {path.name} has no column of text")


def make_data(
    words_file: Path, work: Path, size: int, query_lengths: list[int], queries: int, seed: int
) -> DataSet:
    """The data set of `size` passages and `queries` queries per length, made unless it is there."""
    key = digest(
        ["data", words_file.name, size, query_lengths, queries, seed, SHORTEST, LONGEST, FORMAT]
    )
    folder = work / f"{size}-{key}"
    if (folder / "data.json").exists():
        return open_data(folder)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "warm").mkdir(parents=True)
    corpus = Words(words_file)
    held_out = np.random.default_rng([seed, 0]).random(len(corpus.bounds) - 1) < _HELD_OUT
    windows = corpus.draw(np.flatnonzero(~held_out), (SHORTEST, LONGEST), size, [seed, 1])
    for length in query_lengths:
        asked = corpus.draw(np.flatnonzero(held_out), (length, length), queries, [seed, 2, length])
        lines = [corpus.window(start, count) + b"\n" for start, count in asked.tolist()]
        (folder / f"queries-{length}.txt").write_bytes(b"".join(lines))
        (folder / "warm" / f"queries-{length}.txt").write_bytes(b"".join(lines[:2]))
    _write_passages(folder / "warm", corpus, windows[:WARM_PASSAGES])
    _write_passages(folder, corpus, windows)
    return open_data(folder)


def _write_passages(folder: Path, corpus: Words, windows: NDArray[np.int64]) -> None:
    """Writes the passages as lines and as a tasklm store."""
    store = folder / "store"
    store.mkdir()
    offsets, ids = np.zeros(len(windows) + 1, np.int64), np.empty(len(windows), np.uint64)
    with (folder / "passages.txt").open("wb") as lines, (store / "text.bin").open("wb") as text:
        for first in range(0, len(windows), _WRITTEN_AT_ONCE):
            held = [
                corpus.window(start, length)
                for start, length in windows[first : first + _WRITTEN_AT_ONCE].tolist()
            ]
            lines.write(b"\n".join(held) + b"\n")
            text.write(b"".join(held))
            part = slice(first, first + len(held))
            offsets[first + 1 : first + len(held) + 1] = offsets[first] + np.cumsum(
                [len(passage) for passage in held]
            )
            ids[part] = [text_key(passage.decode()) for passage in held]
    np.save(store / "offsets.npy", offsets)
    np.save(store / "ids.npy", ids)
    np.save(store / "sources.npy", np.zeros(len(windows), np.uint32))
    written = FileRead("passages.txt", int(offsets[-1]), "", documents=len(windows))
    write_files(store, [written], [Portion(0, "", passages=len(windows))])
    write_json(store / "sources.json", [[0, "benchmark", ""]])
    counts = {
        "passages": len(windows),
        "words": int(windows[:, 1].sum()),
        "bytes": int(offsets[-1]),
    }
    write_json(store / "store.json", {"format": FORMAT, "counts": counts})
    write_json(folder / "data.json", counts)  # last: marks it finished
