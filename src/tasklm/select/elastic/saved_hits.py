"""The hits of finished queries on disk, from which an interrupted search continues."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.errors import DamagedError
from tasklm.select.base import Ranking
from tasklm.storage.files import full_disk_is_clear, read_json, write_record

Hits = list[tuple[float, int]]  # score and passage number

# name → number format, and which of a hit's values is in it; None: how many hits each query has
_FILES: dict[str, tuple[str, int | None]] = {
    "counts.bin": ("<i8", None),
    "passages.bin": ("<i8", 1),
    "scores.bin": ("<f4", 0),
}


class SavedHits:
    """The hits of finished queries in three growing files; a record says how much counts."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        with full_disk_is_clear(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.queries, self.entries = self._before()
        self._sums = {name: 0 for name in _FILES}  # CRC-32 of each file
        if not self._is_whole():
            self.queries, self.entries, self._sums = 0, 0, dict.fromkeys(_FILES, 0)
            for name in ("done.json", *_FILES):
                # not emptied: an earlier ranking may still be mapped
                (folder / name).unlink(missing_ok=True)
        for name in _FILES:
            with full_disk_is_clear(folder), (folder / name).open("ab") as file:
                file.truncate(self._size(name))  # an incomplete batch is sent again

    def _before(self) -> tuple[int, int]:
        """How many queries an earlier process sent, and how many entries it wrote; 0 if the record
        is damaged.
        """
        try:
            record = read_json(self.folder / "done.json")
            if record["key"] == self.key:
                return int(record["queries"]), int(record["entries"])
        except (DamagedError, KeyError, TypeError, ValueError):
            pass
        return 0, 0

    def _size(self, name: str) -> int:
        length = self.queries if name == "counts.bin" else self.entries
        return np.dtype(_FILES[name][0]).itemsize * length

    def _is_whole(self) -> bool:
        """Whether the files match the record; their checksums are kept, to continue from."""
        if not self.queries:
            return False
        for name in _FILES:
            path = self.folder / name
            if not path.exists() or path.stat().st_size < self._size(name):
                return False
            self._sums[name] = _checksum(path, self._size(name))
        return bool(read_json(self.folder / "done.json").get("sums") == self._sums)

    def add(self, rows: Sequence[Hits]) -> None:
        """Appends the hits of the next queries."""
        for name, (kind, column) in _FILES.items():
            values: list[float] = [len(row) for row in rows]
            if column is not None:
                values = [hit[column] for hit in chain.from_iterable(rows)]
            content = np.array(values, kind).tobytes()
            self._sums[name] = zlib.crc32(content, self._sums[name])
            with full_disk_is_clear(self.folder), (self.folder / name).open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self.queries += len(rows)
        self.entries += sum(map(len, rows))
        about = {
            "key": self.key,
            "queries": self.queries,
            "entries": self.entries,
            "sums": self._sums,
        }
        write_record(self.folder / "done.json", about)

    def ranking(self) -> Ranking:
        """Everything as a ranking whose entries stay on disk."""
        counts, passages, scores = (self._column(name) for name in _FILES)
        return Ranking(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]),
            passages,
            scores,
        )

    def _column(self, name: str) -> npt.NDArray[Any]:
        path, kind = self.folder / name, np.dtype(_FILES[name][0])
        if not path.stat().st_size:
            return np.empty(0, kind)
        return np.asarray(np.memmap(path, kind, mode="r"))


def _checksum(path: Path, size: int) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(min(1 << 20, size - file.tell())):
            checksum = zlib.crc32(block, checksum)
    return checksum
