"""The candidates of a batch of queries: collected as keys, saved during a search, and at its end as
a ranking.

A key is a whole-number sum above the reversed number of the passage: the highest keys are the best
passages, ties by lower number.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasklm.select.base import Ranking
from tasklm.select.lexical.best_keys import cut, unpack
from tasklm.storage.checksums import files_in, is_sealed, seal
from tasklm.storage.files import full_disk_is_clear, read_json


class Candidates:
    """The best keys of each query so far, and the threads that find them."""

    def __init__(
        self, queries: int, best: int, allowed: int, threads: int, pool: ThreadPoolExecutor
    ) -> None:
        self.queries, self.best, self.pool = queries, best, pool
        self.keys = np.empty((queries, row_width(best, allowed)), np.uint64)
        self.counts = np.zeros(queries, np.int64)
        self.floors = np.zeros(queries, np.int64)
        # changes the speed, never the result
        self.patience = np.full(queries, 0.5, np.float32)
        self._share = max(1, -(-queries // (4 * threads)))

    def share_out(self, work: Callable[[int, int], None]) -> None:
        """Does `work(first, last)` for all queries, shared out to the threads; rows are independent
        of each other.
        """
        tasks = [
            self.pool.submit(work, first, min(first + self._share, self.queries))
            for first in range(0, self.queries, self._share)
        ]
        for task in tasks:
            task.result()

    def sort(self) -> None:
        """Moves each query's best keys to the front, highest first, and drops the others."""

        def work(first: int, last: int) -> None:
            widest = cut(first, last, self.best, self.keys, self.counts)
            mine = self.keys[first:last, :widest]
            mine.sort(axis=1)
            mine[:] = mine[:, ::-1].copy()
            np.minimum(self.counts[first:last], self.best, out=self.counts[first:last])

        self.share_out(work)

    def rows(self) -> npt.NDArray[np.uint64]:
        """All keys, query after query."""
        rows = [row[:count] for row, count in zip(self.keys, self.counts, strict=True)]
        return np.concatenate([np.empty(0, np.uint64), *rows])

    def put(
        self,
        keys: npt.NDArray[np.uint64],
        counts: npt.NDArray[np.int64],
        floors: npt.NDArray[np.int64],
    ) -> None:
        """Takes over what `rows` gave."""
        self.counts[:], self.floors[:] = counts, floors
        for row, part in zip(self.keys, np.split(keys, np.cumsum(counts)[:-1]), strict=True):
            row[: len(part)] = part


def row_width(best: int, allowed: int) -> int:
    """How many keys a query's row holds: beyond `best` is room to collect before the next cut."""
    return max(best + 1, min(2 * best + 64, allowed + 1))


def numbers_of(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The passage numbers in keys."""
    return 0xFFFFFFFF - (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def sums_of(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The sums in keys."""
    return (keys >> np.uint64(32)).astype(np.int64)


def save_open(record: Path, candidates: Candidates, done: int) -> None:
    """Saves an unfinished batch after `done` blocks; only then is the record of fewer blocks
    removed.
    """
    with full_disk_is_clear(record):
        folder = record.with_name(f"{record.name}-{done:05d}")
        folder.mkdir(exist_ok=True)
        arrays = {
            "keys": candidates.rows(),
            "counts": candidates.counts,
            "floors": candidates.floors,
        }
        for name, values in arrays.items():
            np.save(folder / f"{name}.npy", values, allow_pickle=False)
        seal(folder / "done.json", {"blocks": done}, files_in(folder, leave_out=("done.json",)))
    for older in record.parent.glob(f"{record.name}-*"):
        if older != folder:
            _remove(older)


def restore_open(record: Path, candidates: Candidates) -> int:
    """Restores the intact record of an interrupted search; returns the number of
    finished blocks.
    """
    for folder in sorted(record.parent.glob(f"{record.name}-*"), reverse=True):
        if is_sealed(folder / "done.json"):
            keys, counts, floors = (
                np.load(folder / f"{name}.npy", allow_pickle=False)
                for name in ("keys", "counts", "floors")
            )
            candidates.put(keys, counts, floors)
            return int(read_json(folder / "done.json")["blocks"])
    return 0


def _remove(folder: Path) -> None:
    (folder / "done.json").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def write_batch(
    folder: Path, number: int, candidates: Candidates, scales: npt.NDArray[np.float64]
) -> None:
    """Writes the results of a batch; `scales` are units per score of each query."""
    total = int(candidates.counts.sum())
    numbers, scores = np.empty(total, np.int64), np.empty(total, np.float32)
    unpack(candidates.keys, candidates.counts, scales, numbers, scores)
    with full_disk_is_clear(folder):
        arrays: dict[str, npt.NDArray[Any]] = {
            "counts": candidates.counts,
            "passages": numbers,
            "scores": scores,
        }
        for name, values in arrays.items():
            np.save(folder / f"{name}-{number:05d}.npy", values, allow_pickle=False)
        files = [folder / f"{name}-{number:05d}.npy" for name in arrays]
        seal(_done(folder, number), {"queries": candidates.queries}, files)
    for older in folder.glob(f"open-{number:05d}-*"):
        _remove(older)


def _done(folder: Path, number: int) -> Path:
    return folder / f"done-{number:05d}.json"


def is_done(folder: Path, number: int) -> bool:
    """Whether the results of a batch exist and are intact."""
    return is_sealed(_done(folder, number))


def joined(folder: Path, batches: int) -> Ranking:
    """The results of all batches; of more than one, as maps of a file."""
    counts = [np.load(folder / f"counts-{number:05d}.npy") for number in range(batches)]
    offsets = np.concatenate([np.zeros(1, np.int64), *map(np.asarray, counts)]).cumsum()
    return Ranking(
        offsets,
        _column(folder, "passages", batches, np.int64),
        _column(folder, "scores", batches, np.float32),
    )


def _column(folder: Path, name: str, batches: int, kind: Any) -> npt.NDArray[Any]:
    parts = [
        np.load(folder / f"{name}-{number:05d}.npy", mmap_mode="r", allow_pickle=False)
        for number in range(batches)
    ]
    if not parts:
        return np.empty(0, kind)
    total = sum(map(len, parts))
    if len(parts) == 1 or not total:
        return np.asarray(parts[0])
    path = folder / f"{name}.npy"
    # written, not mapped: writing to a map on a full disk kills the process
    with full_disk_is_clear(folder), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (total,)}
        )
        for part in parts:
            file.write(np.ascontiguousarray(part).data.cast("B"))
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
