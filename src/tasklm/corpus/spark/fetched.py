"""Passages of a corpus on a cluster, brought to this machine."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tasklm.storage.files import full_disk_is_clear


class FetchedPassages:
    """Some passages of a corpus, each with number, id, text and source, in a file here."""

    def __init__(self, passages: Iterable[tuple[int, str, str, str]], folder: Path) -> None:
        path = folder / f"fetched.{os.getpid()}.tmp"
        fetched, bounds = array("q"), array("q", [0])
        origins, ids = array("q"), array("Q")
        sources: dict[str, int] = {}
        with full_disk_is_clear(folder), path.open("wb") as file:
            for number, name, text, source in passages:
                file.write(text.encode("utf-8"))
                fetched.append(number)
                bounds.append(file.tell())
                ids.append(int(name, 16))
                origins.append(sources.setdefault(source, len(sources)))
        self._order = np.argsort(np.array(fetched, np.int64))
        self._numbers = np.array(fetched, np.int64)[self._order]
        self._bounds, self._ids, self._origins, self._sources = bounds, ids, origins, list(sources)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        path.unlink()

    def __len__(self) -> int:
        return len(self._numbers)

    def _place(self, number: int) -> int:
        at = int(np.searchsorted(self._numbers, number))
        if at == len(self) or self._numbers[at] != number:
            raise IndexError(f"passage {number} was not fetched")
        return int(self._order[at])

    def text(self, number: int) -> str:
        """Returns passage `number` of the store."""
        at = self._place(number)
        start, stop = self._bounds[at], self._bounds[at + 1]
        return os.pread(self._file, stop - start, start).decode("utf-8")

    def id(self, number: int) -> str:
        """Its stable id."""
        return f"{self._ids[self._place(number)]:016x}"

    def source(self, number: int) -> str:
        """Where it is from."""
        return self._sources[self._origins[self._place(number)]]
