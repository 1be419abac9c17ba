"""Finished artefacts that runs share: a folder has each of them once, and runs have links to it.

An artefact of a pool is known by its name, its key and the contents of what it was built from. Its
files have several names (hard links), so that it takes its space once, and stays as long as the
pool or one of the runs is there. Where links are not supported, it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.errors import DamagedError
from tasklm.storage.checksums import files_in, require_whole
from tasklm.storage.files import (
    ARTEFACT,
    digest,
    full_disk_is_clear,
    link_or_copy,
    make_folder,
    publish,
    remove,
)
from tasklm.storage.locks import alone


@dataclass(frozen=True)
class Twin:
    """The place in a pool of what a run is about to build."""

    folder: Path
    tell: Callable[[str], None]

    @classmethod
    def of(
        cls, pool: Path, name: str, about: Mapping[str, Any], tell: Callable[[str], None]
    ) -> Twin:
        """`about`: the key of an artefact, and the contents of what it is built from."""
        return cls(make_folder(pool) / f"{name}-{digest([name, about])}", tell)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other runs from building the same meanwhile; waits for one that is building it."""
        with alone(self._beside("lock"), self._wait):
            yield

    def link_to(self, folder: Path) -> bool:
        """Makes a folder with the files of the twin, if there is one and it is whole."""
        if not (self.folder / ARTEFACT).exists():
            return False
        try:
            require_whole(self.folder)
        except DamagedError as error:
            self.tell(f"{error.file} is damaged ({error.problem}); building it again")
            self.drop()
            return False
        linked_copy(self.folder, folder)
        return True

    def drop(self) -> None:
        """Forgets the twin: it is damaged."""
        remove(self.folder)

    def keep(self, finished: Path) -> None:
        """Keeps a finished artefact for other runs."""
        partial = self._beside("partial")
        linked_copy(finished, partial)
        self.drop()
        publish(partial, self.folder)

    def _wait(self) -> None:
        self.tell(f"waiting for another run to build {self.folder}")

    def _beside(self, what: str) -> Path:
        return self.folder.with_name(f".{self.folder.name}.{what}")


def linked_copy(source: Path, target: Path) -> None:
    """A folder with links to all files of another; what was there is deleted."""
    remove(target)
    with full_disk_is_clear(target):
        for file in files_in(source):
            other = target / file.relative_to(source)
            other.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, other)
