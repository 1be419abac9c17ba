"""The BM25 index on disk: independent blocks of plain memory-mapped arrays.

A block covers up to 65,536 consecutive passages (fewer when their text is long) and holds, by ascending 64-bit term
hash, which passages contain the term and how often, and each passage's length in words. Nothing in it depends on k1, b
or the task, so every task on the same corpus shares it. Blocks are written one after the other and a half-built index
goes on from its last finished block; memory holds two blocks of text at most, whatever the size of the corpus.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.corpus.store import PassageStore
from tasklm.corpus.words import words
from tasklm.errors import RunError
from tasklm.runs import full_disk_is_clear, read_json, write_json
from tasklm.select.bm25_kernels import ANY_BYTE, LETTERS, SEPARATOR, invert, split
from tasklm.tracking import Tracker

FORMAT = 1  # raise it when the files below or the splitting into words change
_BLOCK_PASSAGES = 1 << 16  # passage numbers inside a block are 16 bits wide
_BLOCK_BYTES = 64 << 20
_READ_AT_ONCE = 512
_ARRAYS = {"terms": "u8", "offsets": "i8", "passages": "u2", "tf": "u1 u2 u4", "lengths": "u4"}


@dataclass
class RawBlock:
    """The text of one block: passages end to end as bytes, ASCII as it is, other text split into terms already."""

    start: int
    text: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]  # [passages + 1]
    split_already: npt.NDArray[np.bool_]  # [passages]

    @property
    def stop(self) -> int:
        """Returns the number of the passage after the last."""
        return self.start + len(self.split_already)


@dataclass
class Block:
    """The postings of passages start…stop; passage numbers count from `start`."""

    folder: Path
    start: int
    stop: int
    terms: npt.NDArray[np.uint64]  # ascending hashes
    offsets: npt.NDArray[np.int64]  # [terms + 1]
    passages: npt.NDArray[np.uint16]
    tf: npt.NDArray[np.unsignedinteger[Any]]
    lengths: npt.NDArray[np.uint32]  # [stop - start] words per passage

    def find(self, terms: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns where the postings of each term start and end; both 0 for a term that is not here."""
        if not len(self.terms):
            return np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64)
        at = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        here = self.terms[at] == terms
        return np.where(here, self.offsets[at], 0), np.where(here, self.offsets[at + 1], 0)


class Bm25Index:
    """A finished index, opened without reading its postings."""

    def __init__(self, folder: Path) -> None:
        record = _record(folder / "index.json", folder, ("format", "blocks", "passages", "words"))
        if record["format"] != FORMAT:
            raise RunError(f"the index {folder} has format {record['format']}, this tasklm reads {FORMAT}. {_REDO}")
        self.folder = folder
        self.blocks = [_open_block(folder / _block_name(number)) for number in range(int(record["blocks"]))]
        self.passages = int(record["passages"])
        self.words = int(record["words"])
        ends = [0] + [block.stop for block in self.blocks]
        if any(block.start != end for block, end in zip(self.blocks, ends, strict=False)) or ends[-1] != self.passages:
            raise damaged(folder)

    @property
    def average_length(self) -> float:
        """Returns the mean length of a passage in words, at least a little above nothing."""
        return max(self.words, 1) / max(self.passages, 1)

    def frequencies(self, terms: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Returns in how many passages each term occurs."""
        total = np.zeros(len(terms), np.int64)
        for block in self.blocks:
            starts, ends = block.find(terms)
            total += ends - starts
        return total


_REDO = "Delete this folder and run the same command again: the index is then built anew."


def damaged(folder: Path) -> RunError:
    """Returns the error for an index whose files are not what was written."""
    return RunError(f"the index {folder} is damaged. {_REDO}")


def hash_terms(terms: list[str]) -> npt.NDArray[np.uint64]:
    """Returns the 64-bit hash of each term; terms are not empty."""
    text = np.frombuffer(SEPARATOR.join(terms).encode("utf-8", "surrogatepass"), np.uint8)
    hashes, numbers, _ = split(text, np.array([0, len(text)], np.int64), np.ones(1, np.bool_), LETTERS, ANY_BYTE)
    return np.asarray(hashes[numbers], np.uint64)


def build_index(store: PassageStore, folder: Path, tracker: Tracker) -> None:
    """Writes the index of all passages of the store into `folder`, going on after the blocks that are there."""
    blocks = _finished_blocks(folder)
    number, start = len(blocks), blocks[-1].stop if blocks else 0
    total_words = sum(int(block.lengths.sum(dtype=np.int64)) for block in blocks)
    del blocks
    started, first = time.monotonic(), start
    with tracker.progress("index", total=len(store)) as bar, ThreadPoolExecutor(1) as worker:
        bar.advance(start)
        under_way: Future[int] | None = None
        for raw in read_blocks(store, start):  # reads the next block while the worker inverts the last
            if under_way is not None:
                total_words += under_way.result()
            under_way = worker.submit(_write_block, folder / _block_name(number), raw)
            number += 1
            rate = (raw.stop - first) / max(time.monotonic() - started, 1e-9)
            bar.advance(raw.stop - raw.start, f"{rate:,.0f} passages/s")
        if under_way is not None:
            total_words += under_way.result()
    write_json(
        folder / "index.json",
        {"format": FORMAT, "passages": len(store), "words": total_words, "blocks": number},
    )


def read_blocks(store: PassageStore, start: int = 0) -> Iterator[RawBlock]:
    """Yields the store's text block by block from passage `start` on."""
    text, bounds, split_already = bytearray(), [0], []
    for first in range(start, len(store), _READ_AT_ONCE):
        for passage in store.texts(first, min(first + _READ_AT_ONCE, len(store))):
            ready = passage.isascii()
            text += passage.encode("ascii") if ready else SEPARATOR.join(words(passage)).encode("utf-8", "surrogatepass")
            bounds.append(len(text))
            split_already.append(not ready)
            if len(split_already) == _BLOCK_PASSAGES or len(text) >= _BLOCK_BYTES:
                yield _raw_block(start, text, bounds, split_already)
                start += len(split_already)
                text, bounds, split_already = bytearray(), [0], []
    if split_already:
        yield _raw_block(start, text, bounds, split_already)


def _raw_block(start: int, text: bytearray, bounds: list[int], split_already: list[bool]) -> RawBlock:
    return RawBlock(start, np.frombuffer(text, np.uint8), np.array(bounds, np.int64), np.array(split_already, np.bool_))


def _block_name(number: int) -> str:
    return f"block-{number:05d}"


def _write_block(folder: Path, raw: RawBlock) -> int:
    """Inverts a block, writes it, and returns its number of words."""
    hashes, numbers, word_bounds = split(raw.text, raw.bounds, raw.split_already, LETTERS, ANY_BYTE)
    terms, offsets, passages, tf = invert(hashes, numbers, word_bounds)
    widest = int(tf.max()) if len(tf) else 0
    narrow = np.uint8 if widest < 1 << 8 else np.uint16 if widest < 1 << 16 else np.uint32
    arrays = {
        "terms": terms,
        "offsets": offsets,
        "passages": passages,
        "tf": tf.astype(narrow),
        "lengths": np.diff(word_bounds).astype(np.uint32),
    }
    with full_disk_is_clear(folder):
        folder.mkdir(exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    sums = {name: {"length": len(array), "crc": zlib.crc32(memoryview(array))} for name, array in arrays.items()}
    write_json(folder / "block.json", {"start": raw.start, "stop": raw.stop, **sums})  # last: marks it finished
    return len(numbers)


def _finished_blocks(folder: Path) -> list[Block]:
    """Returns the blocks that an interrupted build has finished."""
    blocks: list[Block] = []
    while (folder / _block_name(len(blocks)) / "block.json").exists():
        try:
            block = _open_block(folder / _block_name(len(blocks)))
            verify(block)
        except RunError:
            break  # cut off by a crash of the machine: written again
        blocks.append(block)
    return blocks


def _record(path: Path, index: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    record = read_json(path) if path.exists() else None
    if not isinstance(record, dict) or not record.keys() >= set(keys):
        raise damaged(index)
    return record


def _block_record(folder: Path) -> dict[str, Any]:
    return _record(folder / "block.json", folder.parent, ("start", "stop", *_ARRAYS))


def _open_block(folder: Path) -> Block:
    """Returns the block with its arrays mapped; kinds and lengths are checked, contents are left to `verify`."""
    record, index = _block_record(folder), folder.parent
    arrays: dict[str, Any] = {}
    for name, kinds in _ARRAYS.items():
        try:
            array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            raise damaged(index) from None
        if array.shape != (record[name]["length"],) or array.dtype not in [np.dtype(kind) for kind in kinds.split()]:
            raise damaged(index)
        arrays[name] = np.asarray(array)
    lengths_fit = (
        len(arrays["offsets"]) == len(arrays["terms"]) + 1
        and len(arrays["passages"]) == len(arrays["tf"])
        and len(arrays["lengths"]) == record["stop"] - record["start"]
    )
    if not lengths_fit:
        raise damaged(index)
    return Block(folder, record["start"], record["stop"], **arrays)


def verify(block: Block) -> None:
    """Raises unless the block's arrays are, byte for byte, what was written; the compiled loops trust them after this."""
    record = _block_record(block.folder)
    for name in _ARRAYS:
        if zlib.crc32(memoryview(getattr(block, name))) != record[name]["crc"]:
            raise damaged(block.folder.parent)
