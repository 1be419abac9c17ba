"""The corpus on disk: passages split, deduplicated and numbered once, then read through memory maps
by later steps.

text.bin      the passages, UTF-8, one after another
offsets.npy   int64, where each begins; one more for the end
ids.npy       uint64, `text_key` of each: the same text has the same id in every corpus
sources.npy   uint32, places in sources.json
sources.json  [number of the file, where its rows say that they are from, licence] of each source
files.json    the files with the hashes of their contents, and the passages of each by licence
store.json    format and counts; written last
"""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasklm.artifacts import Artefacts
from tasklm.console.progress import Bar
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.dedupe import text_key
from tasklm.corpus.file_reading import FileReading
from tasklm.corpus.portions import Ints, portion_places, read_files
from tasklm.corpus.processes import in_order, processes_for
from tasklm.corpus.same_text import store_of_same_text
from tasklm.corpus.sources import Document, NoTextColumn, fingerprint
from tasklm.corpus.store_writer import StoreWriter, cut_documents
from tasklm.errors import DataError, RunError
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import damaged, digest, read_json, write_json
from tasklm.tracking import Tracker

if TYPE_CHECKING:
    from tasklm.corpus.contamination import Contamination

FORMAT = 2
_BATCH = 1 << 19  # characters of documents cut and written at once
_WORTH_A_PROCESS = 8 << 20  # bytes of files: smaller ones are read before a process has started


def corpus_key(text: CorpusText) -> str:
    """The key of the store built from these files and settings."""
    return digest(["corpus", FORMAT, fingerprint(text.files), *text.settings])


def _settings_key(text: CorpusText) -> str:
    """A hash of what else than the files decides what a store has."""
    return digest([FORMAT, *text.settings])


def kept_store(
    text: CorpusText, cache: Artefacts, tracker: Tracker
) -> tuple[PassageStore, str, str]:
    """The passages of a corpus, built in the cache unless they exist, with their key and their name
    in it. Files whose times alone have changed are found by their content.
    """
    key = corpus_key(text)
    if cache.key(f"corpus-{key}") is None:
        same = store_of_same_text(cache, text.files, _settings_key(text))
        if same is not None:
            tracker.detail("the text is that of an earlier run, though its files have other times")
            key = same
    name = f"corpus-{key}"
    folder = cache.build(name, key, lambda part: build_store(part, text, tracker))
    return PassageStore.open(folder), key, name


def build_store(
    folder: Path, text: CorpusText, tracker: Tracker, processes: int | None = None
) -> None:
    """Writes the passages of the files to the folder, each text once; always starts from the
    beginning.

    Files are read here and documents are split by `processes`; by default as many as are worth
    starting. Memory: 11-23 bytes per passage for the set of keys, 12 bytes per repeated passage,
    and per process some megabytes of text, or the longest document.
    """
    files: Sequence[Path] = text.files
    counts = Counter(
        {name: 0 for name in ("documents", "passages", "duplicates", "empty", "words", "bytes")}
    )
    (folder / "store.json").unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in files)
    waiting: deque[list[int]] = deque()  # the sources of documents in progress

    def batches(documents: Iterator[tuple[Document, int]]) -> Iterator[list[str]]:
        for batch in _batched(documents):
            waiting.append([writer.source(document, file) for document, file in batch])
            yield [document.text for document, _ in batch]

    with StoreWriter(folder, counts) as writer, tracker.progress("reading the corpus", size) as bar:
        texts = batches(_documents(text, writer, tracker, bar))
        for cut in in_order(
            partial(cut_documents, text.passage_words),
            texts,
            processes or processes_for(size, _WORTH_A_PROCESS),
        ):
            writer.add(cut, waiting.popleft())
    if not counts["passages"]:
        raise DataError(
            "the corpus has no text",
            file=", ".join(map(str, files[:3])),
            remedy=(
                "Name other files, or the column with the text "
                "with --corpus-column (recipe: data.corpus_column)."
            ),
        )
    tracker.event("corpus", **counts)
    write_json(
        folder / "store.json",
        {"format": FORMAT, "counts": dict(counts), "settings": _settings_key(text)},
    )


def _batched(documents: Iterator[tuple[Document, int]]) -> Iterator[list[tuple[Document, int]]]:
    """Yields the documents in lists of at least _BATCH characters, but for the last."""
    batch: list[tuple[Document, int]] = []
    held = 0
    for document, file in documents:
        batch.append((document, file))
        held += len(document.text)
        if held >= _BATCH:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _documents(
    text: CorpusText, writer: StoreWriter, tracker: Tracker, bar: Bar
) -> Iterator[tuple[Document, int]]:
    """Yields the documents with the numbers of their files, and tells the writer of the files."""
    started, passages = time.monotonic(), writer.counts

    def advance(size: int) -> None:
        seconds = max(time.monotonic() - started, 1e-9)
        rate = passages["passages"] / seconds
        bar.advance(size, f"{passages['passages']:,} passages, {rate:,.0f}/s")

    no_text: list[NoTextColumn] = []
    for number, path in enumerate(text.files):
        try:
            reading = FileReading(path, text, number, advance)
            yield from ((document, number) for document in reading)
            writer.counts.update(reading.counts)
        except NoTextColumn as error:
            no_text.append(error)
            if len(no_text) == len(text.files):
                raise
            # a list or an index beside the corpus; if it were the whole corpus, nothing would be
            # left and an error raised
            tracker.say(f"skipped in the corpus: {error}")
        writer.files.append(reading.about())


class PassageStore:
    """The passages of a corpus, read from disk on demand."""

    def __init__(self, folder: Path, counts: dict[str, int]) -> None:
        self.folder, self.counts = folder, counts
        # mapped, but as plain arrays: NumPy's memmap class takes microseconds per access
        names = ("offsets.npy", "ids.npy", "sources.npy")
        self._offsets, self._ids, self._origins = (
            load_array(folder / name, dtype, mapped=True)
            for name, dtype in zip(names, ("<i8", "<u8", "<u4"), strict=True)
        )
        self.files, self.portions = read_files(folder)
        sources = read_json(folder / "sources.json")
        self._sources = [(int(file), str(name), str(licence)) for file, name, licence in sources]
        self._portion_of = portion_places(self._sources, self.portions)
        # read, not mapped: scanned pages of a map would count as this process's memory
        self._text = os.open(folder / "text.bin", os.O_RDONLY)
        weakref.finalize(self, os.close, self._text)

    @classmethod
    def open(cls, folder: Path) -> PassageStore:
        """The store in the folder; another format or damage is refused."""
        path = folder / "store.json"
        with damage_is_clear(path):
            record = read_json(path)
            if record["format"] != FORMAT:
                again = (
                    "Delete this folder and run the same command again to rebuild it from the "
                    "corpus."
                )
                raise RunError(
                    f"{folder} was written by another version of tasklm (format "
                    f"{record['format']}, but this one reads {FORMAT}). {again}"
                )
            store = cls(folder, dict(record["counts"]))
            ends = (
                len(store._offsets) - 1,
                len(store._ids),
                len(store._origins),
                store.counts["passages"],
            )
            sizes = {
                int(store._offsets[-1]),
                int(store.counts["bytes"]),
                os.fstat(store._text).st_size,
            }
            whole = len(set(ends)) == len(sizes) == 1
        if not whole:
            raise damaged(folder / "text.bin", "the files of the corpus are inconsistent")
        return store

    @property
    def local(self) -> PassageStore:
        """This store: all of its texts are on this machine."""
        return self

    @property
    def cluster(self) -> None:
        """None: nothing of it is on a cluster."""
        return None

    def contaminated(
        self, splits: Mapping[str, Sequence[str]], run_words: int, tracker: Tracker
    ) -> Contamination:
        """Which passages share `run_words` consecutive words with any text of the splits."""
        from tasklm.corpus.decontaminate import contaminated  # which reads stores

        return contaminated(self, splits, run_words, tracker)

    def fetch(self, numbers: NDArray[np.int64], folder: Path) -> PassageStore:
        """All passages: they are already here."""
        return self

    def close(self) -> None:
        """Nothing to release: files are closed with the object."""

    def __len__(self) -> int:
        return len(self._ids)

    def text(self, i: int) -> str:
        """Returns passage i."""
        if not 0 <= i < len(self):
            raise IndexError(f"passage {i} of {len(self)}")
        start, stop = int(self._offsets[i]), int(self._offsets[i + 1])
        text = b""
        if 0 <= start <= stop <= self.counts["bytes"]:
            text = os.pread(self._text, stop - start, start)
        if len(text) != stop - start:
            return self.texts(i, i + 1)[0]  # which reads more, or raises
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise damaged(self.folder / "text.bin", str(error)) from error

    def texts(self, start: int, stop: int) -> list[str]:
        """The passages from `start` up to `stop`, read in one go."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"passages {start} to {stop} of {len(self)}")
        block, bounds = self.raw(start, stop)
        try:
            return [block[a:b].decode("utf-8") for a, b in pairwise(bounds.tolist())]
        except UnicodeDecodeError as error:
            raise damaged(self.folder / "text.bin", str(error)) from error

    def raw(self, start: int, stop: int) -> tuple[bytearray, NDArray[np.int64]]:
        """The passages from `start` up to `stop` end to end as UTF-8, and where each begins and the
        last ends.
        """
        bounds = np.array(self._offsets[start : stop + 1])
        # compiled loops do not check these
        if (bounds[1:] < bounds[:-1]).any() or bounds[0] < 0 or bounds[-1] > self.counts["bytes"]:
            raise damaged(self.folder / "offsets.npy", "its offsets are inconsistent")
        block = bytearray(int(bounds[-1] - bounds[0]))
        read = 0
        while read < len(block):  # the system returns at most 2 GiB at a time
            part = os.preadv(self._text, [memoryview(block)[read:]], int(bounds[0]) + read)
            if not part:
                raise damaged(self.folder / "text.bin", "it was truncated while being read")
            read += part
        return block, bounds - bounds[0]

    def ids(self, start: int, stop: int) -> NDArray[np.uint64]:
        """The ids of the passages from `start` up to `stop` as numbers."""
        return np.asarray(self._ids[start:stop])

    def bytes_up_to(self, i: int) -> int:
        """The bytes of text before passage i."""
        return int(self._offsets[i])

    def sample(self) -> list[str]:
        """The texts of 2,000 passages drawn at random, the same at each call; each is
        compared with its id."""
        numbers = np.random.default_rng(0).integers(0, len(self), 2000).tolist()
        texts = [self.text(number) for number in numbers]
        if any(
            text_key(text) != int(self._ids[number])
            for number, text in zip(numbers, texts, strict=True)
        ):
            raise damaged(self.folder / "text.bin", "a passage does not match its id")
        return texts

    def id(self, i: int) -> str:
        """The passage's stable id, 16 hexadecimal digits: a hash of its text."""
        return f"{int(self._ids[i]):016x}"

    def portions_of(self, numbers: Ints) -> Ints:
        """The places of passages among the portions."""
        try:
            places: Ints = self._portion_of[self._origins[numbers]]
            return places
        except IndexError:
            raise damaged(self.folder / "sources.npy", "it does not match sources.json") from None

    def source(self, i: int) -> str:
        """Where the passage is from."""
        try:
            return self._sources[int(self._origins[i])][1]
        except IndexError:
            raise damaged(self.folder / "sources.npy", "it does not match sources.json") from None
