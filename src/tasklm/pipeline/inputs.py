"""The files that a run reads beside its corpus, with the hashes of their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tasklm.errors import DataError
from tasklm.storage.files import CONTENT_BYTES, digest
from tasklm.storage.safe_reading import is_there, open_regular


@dataclass(frozen=True)
class InputFile:
    """A file and the hash of its content."""

    path: str
    bytes: int
    sha256: str


@dataclass
class Inputs:
    """The files that were hashed so far."""

    files: dict[Path, InputFile] = field(default_factory=dict)
    _states: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def watch(self, paths: Iterable[Path]) -> None:
        """Notes how files are now, or those of folders, before they are read."""
        for path in paths:
            for file in _files_of(path):
                self._states[file] = _state(file)

    def content(self, path: Path) -> str:
        """A hash of a file, or of all files of a folder; one that has changed since it was
        `watched` raises DataError.
        """
        if not path.is_dir():
            return self._hashed(path)
        return digest(
            [(str(file.relative_to(path)), self._hashed(file)) for file in _files_of(path)]
        )

    def of(self, path: Path) -> list[InputFile]:
        """A file that was hashed, or those of a folder."""
        return [self.files[file] for file in _files_of(path) if file in self.files]

    def _hashed(self, path: Path) -> str:
        short, long, size = hashlib.blake2b(digest_size=CONTENT_BYTES), hashlib.sha256(), 0
        with open_regular(path) as file:
            while block := file.read(1 << 20):
                short.update(block)
                long.update(block)
                size += len(block)
        if path in self._states and self._states[path] != _state(path):
            raise DataError(
                "the file changed while it was read",
                file=path,
                remedy="Wait until it is complete, and run the same command again.",
            )
        self.files[path] = InputFile(str(path), size, long.hexdigest())
        return short.hexdigest()


def _files_of(path: Path) -> Iterator[Path]:
    if not is_there(path):
        return  # its reader says so
    if not path.is_dir():
        yield path
        return
    yield from (file for file in sorted(path.rglob("*")) if file.is_file())


def _state(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns
