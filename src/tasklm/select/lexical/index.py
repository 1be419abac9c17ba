"""The BM25 index: independent blocks of plain arrays, on disk and memory-mapped, or rebuilt from
the text when needed.

A block covers up to 65,536 consecutive passages (fewer when their text is long) and holds, by
ascending 64-bit term hash, which passages contain the term and how often, and each passage's length
in words. Nothing in it depends on k1, b or the task, so every task on the same corpus shares it. A
half-built index continues after its finished blocks, and a block that another index of the same
folder already has is reused: a corpus that grew at its end is not read again.
"""

from __future__ import annotations

import mmap
import time
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasklm.corpus.store import PassageStore
from tasklm.errors import DamagedError, RunError
from tasklm.select.content import content_key
from tasklm.select.lexical.kernels import SEPARATOR, invert, split
from tasklm.select.lexical.terms import Stemmer
from tasklm.select.lexical.text import RawBlock, block_bounds, folds, read_block
from tasklm.storage.files import damaged, full_disk_is_clear, link_or_copy, read_json, write_json
from tasklm.tracking import Tracker

FORMAT = 2  # raise it when the files below or the splitting into terms change
_ARRAYS = {"terms": "u8", "offsets": "u4", "passages": "u2", "tf": "u1 u2 u4", "lengths": "u4"}


@dataclass
class Block:
    """The postings of passages start…stop; passage numbers count from `start`."""

    start: int
    stop: int
    terms: npt.NDArray[np.uint64]  # ascending hashes
    offsets: npt.NDArray[np.uint32]  # [terms + 1]
    passages: npt.NDArray[np.uint16]
    tf: npt.NDArray[np.unsignedinteger[Any]]
    lengths: npt.NDArray[np.uint32]  # [stop - start] words per passage

    def find(
        self, terms: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Where the postings of each term start and end; both 0 for a term that is not here."""
        if not len(self.terms):
            return np.zeros(len(terms), np.uint32), np.zeros(len(terms), np.uint32)
        at = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        here = self.terms[at] == terms
        nowhere = np.uint32(0)
        return np.where(here, self.offsets[at], nowhere), np.where(
            here, self.offsets[at + 1], nowhere
        )

    def frequencies(self, terms: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """In how many of the block's passages each term occurs."""
        starts, ends = self.find(terms)
        return (ends - starts).astype(np.int64)


@dataclass
class Statistics:
    """The corpus statistics of BM25; the statistics of parts add up."""

    passages: int
    words: int
    frequencies: npt.NDArray[np.int64]  # of the requested terms

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.passages + other.passages,
            self.words + other.words,
            self.frequencies + other.frequencies,
        )

    @property
    def average_length(self) -> float:
        """The mean length of a passage in words, always above 0."""
        return max(self.words, 1) / max(self.passages, 1)


def block_statistics(block: Block, terms: npt.NDArray[np.uint64]) -> Statistics:
    """The block's part of the statistics."""
    return Statistics(
        block.stop - block.start, int(block.lengths.sum(dtype=np.int64)), block.frequencies(terms)
    )


class Index(Protocol):
    """Blocks that can be iterated repeatedly."""

    key: str  # identifies its content
    passages: int
    count: int  # of blocks

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """Yields the blocks in order, from block number `first` on."""

    def statistics(self, terms: npt.NDArray[np.uint64]) -> Statistics:
        """The corpus statistics, with the frequencies of these terms."""


class StoredIndex:
    """A finished index, opened without reading its postings."""

    def __init__(self, folder: Path) -> None:
        record = _record(folder / "index.json", folder, ("format",))
        if record["format"] != FORMAT:
            raise RunError(
                f"the index {folder} has format "
                f"{record['format']}, but this tasklm reads {FORMAT}. {_REDO}"
            )
        record = _record(folder / "index.json", folder, ("blocks", "passages"))
        self.folder, self.key = folder, folder.name
        self.passages, self.count = int(record["passages"]), int(record["blocks"])
        self._blocks = [_open_block(folder / _block_name(number)) for number in range(self.count)]
        ends = [0] + [block.stop for block in self._blocks]
        if (
            any(block.start != end for block, end in zip(self._blocks, ends, strict=False))
            or ends[-1] != self.passages
        ):
            raise damaged_index(folder)
        self._checked: set[int] = set()

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """Yields the blocks; each is compared with its checksums when it is first handed out.

        After use its pages are released, so that a large index does not fill the memory of this
        process.
        """
        for number in range(first, self.count):
            if number not in self._checked:
                _verify(self._blocks[number], self.folder / _block_name(number))
                self._checked.add(number)
            yield self._blocks[number]
            _let_go(self._blocks[number])

    def statistics(self, terms: npt.NDArray[np.uint64]) -> Statistics:
        """The corpus statistics, with the frequencies of these terms."""
        return sum(
            (block_statistics(block, terms) for block in self.blocks()),
            Statistics(0, 0, np.zeros(len(terms), np.int64)),
        )


class FreshIndex:
    """An index that is never stored: each block is built from the text when needed."""

    def __init__(self, store: PassageStore, stem: Stemmer | None, threads: int) -> None:
        self.store, self.stem, self.threads = store, stem, threads
        self._bounds = list(block_bounds(store))
        self.key = content_key(store)
        self.passages, self.count = len(store), len(self._bounds)

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """Yields the blocks, building the next ones while one is used."""
        with ThreadPoolExecutor(self.threads) as pool:
            ahead: deque[Future[Block]] = deque()
            for bounds in self._bounds[first:]:
                ahead.append(pool.submit(self._block, bounds))
                if len(ahead) > self.threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _block(self, bounds: tuple[int, int]) -> Block:
        start, stop = bounds
        return inverted(read_block(self.store, start, stop, self.stem))

    def statistics(self, terms: npt.NDArray[np.uint64]) -> Statistics:
        """The corpus statistics with the frequencies of these terms; reads the whole text."""
        return sum(
            (block_statistics(block, terms) for block in self.blocks()),
            Statistics(0, 0, np.zeros(len(terms), np.int64)),
        )


_REDO = "Delete this folder and run the same command again to rebuild the index."


def damaged_index(folder: Path) -> DamagedError:
    """The error for an index whose files differ from what was written."""
    return damaged(folder / "index.json", "the files of the index differ from what was written")


def hash_terms(terms: list[str]) -> npt.NDArray[np.uint64]:
    """The 64-bit hash of each term; terms are not empty."""
    text = np.frombuffer(SEPARATOR.join(terms).encode("utf-8", "replace"), np.uint8)
    hashes, numbers, _ = split(
        text, np.array([0, len(text)], np.int64), np.ones(1, np.bool_), folds().at, folds().folded
    )
    return np.asarray(hashes[numbers], np.uint64)


def inverted(raw: RawBlock) -> Block:
    """The postings of a block of text."""
    hashes, numbers, word_bounds = split(
        raw.text, raw.bounds, raw.split_already, folds().at, folds().folded
    )
    terms, offsets, passages, tf = invert(hashes, numbers, word_bounds)
    narrow = np.min_scalar_type(tf.max(initial=0))
    return Block(
        raw.start,
        raw.stop,
        terms,
        offsets,
        passages,
        tf.astype(narrow),
        np.diff(word_bounds).astype(np.uint32),
    )


def build_index(
    store: PassageStore, folder: Path, stem: Stemmer | None, threads: int, tracker: Tracker
) -> None:
    """Writes the index of all passages of the store into `folder`, continuing after existing
    blocks.
    """
    bounds = list(block_bounds(store))
    started, done = time.monotonic(), 0

    def make(number: int) -> int:
        """Builds block `number` unless it exists; returns how many passages were read."""
        start, stop = bounds[number]
        part, content = folder / _block_name(number), content_key(store, start, stop)
        if _is_whole(part, content) or _taken_over(part, folder.parent, start, stop, content):
            return 0
        _write_block(part, inverted(read_block(store, start, stop, stem)), content)
        return stop - start

    with tracker.progress("index", total=len(store)) as bar, ThreadPoolExecutor(threads) as pool:
        ahead: deque[tuple[int, Future[int]]] = deque()
        for number in range(len(bounds) + threads):
            if number < len(bounds):
                ahead.append((bounds[number][1] - bounds[number][0], pool.submit(make, number)))
            if ahead and (number >= len(bounds) or len(ahead) > threads):
                size, work = ahead.popleft()
                done += work.result()
                bar.advance(size, f"{done / max(time.monotonic() - started, 1e-9):,.0f} passages/s")
        while ahead:
            ahead.popleft()[1].result()
    write_json(
        folder / "index.json", {"format": FORMAT, "passages": len(store), "blocks": len(bounds)}
    )


def _block_name(number: int) -> str:
    return f"block-{number:05d}"


def _write_block(folder: Path, block: Block, content: str) -> None:
    arrays = {name: getattr(block, name) for name in _ARRAYS}
    with full_disk_is_clear(folder):
        folder.mkdir(exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    sums = {
        name: {"length": len(array), "crc": zlib.crc32(memoryview(array))}
        for name, array in arrays.items()
    }
    _write_record(folder, block.start, block.stop, content, sums)


def _write_record(folder: Path, start: int, stop: int, content: str, sums: dict[str, Any]) -> None:
    """Marks the block as finished: written last."""
    write_json(
        folder / "block.json",
        {"format": FORMAT, "start": start, "stop": stop, "content": content, **sums},
    )


def _is_whole(folder: Path, content: str) -> bool:
    """Whether an interrupted build finished this block; one that a crash interrupted is written
    again.
    """
    if not (folder / "block.json").exists():
        return False
    try:
        _verify(_open_block(folder), folder)
    except RunError:
        return False
    return bool(read_json(folder / "block.json").get("content") == content)


def _taken_over(folder: Path, indexes: Path, start: int, stop: int, content: str) -> bool:
    """Links the files of an equal block of another finished index beside this one; returns whether
    there was one.
    """
    for path in sorted(
        indexes.glob(f"{folder.parent.name.split('-')[0]}-*/{folder.name}/block.json")
    ):
        try:
            record = _record(path, path.parent.parent, ("content", "format", "stop"))
        except DamagedError:
            continue
        about = (record.get("content"), record.get("format"), record.get("stop"))
        same = about == (content, FORMAT, stop)
        if not same or path.parent == folder or not (path.parent.parent / "index.json").exists():
            continue
        try:
            _verify(_open_block(path.parent), path.parent)
        except RunError:
            continue
        with full_disk_is_clear(folder):
            folder.mkdir(exist_ok=True)
            for name in _ARRAYS:
                target = folder / f"{name}.npy"
                target.unlink(missing_ok=True)
                link_or_copy(path.parent / f"{name}.npy", target)
        _write_record(folder, start, stop, content, {name: record[name] for name in _ARRAYS})
        return True
    return False


def _record(path: Path, index: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    if not path.exists():
        raise damaged_index(index)
    record = read_json(path)
    if not isinstance(record, dict) or not record.keys() >= set(keys):
        raise damaged_index(index)
    return record


def _open_block(folder: Path) -> Block:
    """The block with its arrays mapped; kinds and lengths are checked, contents are left to
    `_verify`.
    """
    index = folder.parent
    record = _record(folder / "block.json", index, ("start", "stop", *_ARRAYS))
    arrays: dict[str, Any] = {}
    for name, kinds in _ARRAYS.items():
        try:
            array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            raise damaged_index(index) from None
        known_kind = array.dtype in [np.dtype(kind) for kind in kinds.split()]
        if array.shape != (record[name]["length"],) or not known_kind:
            raise damaged_index(index)
        arrays[name] = np.asarray(array)
    lengths_fit = (
        len(arrays["offsets"]) == len(arrays["terms"]) + 1
        and len(arrays["passages"]) == len(arrays["tf"])
        and len(arrays["lengths"]) == record["stop"] - record["start"]
    )
    if not lengths_fit:
        raise damaged_index(index)
    return Block(record["start"], record["stop"], **arrays)


def _let_go(block: Block) -> None:
    """Tells the system that the mapped pages of a block are not currently needed."""
    for name in _ARRAYS:
        mapped = getattr(getattr(block, name).base, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def _verify(block: Block, folder: Path) -> None:
    """Raises unless the block's arrays are, byte for byte, what was written; the compiled loops
    trust them after this.
    """
    record = _record(folder / "block.json", folder.parent, tuple(_ARRAYS))
    for name in _ARRAYS:
        if zlib.crc32(memoryview(getattr(block, name))) != record[name]["crc"]:
            raise damaged_index(folder.parent)
