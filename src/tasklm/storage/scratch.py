"""Temporary folders in the system's place for them, of which none outlasts its process for long."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

from tasklm.storage.files import remove

_PREFIX = "tasklm-scratch-"


class Scratch:
    """A new folder for temporary files. It is deleted at the end of the context, with this object,
    or with the process; if the process was killed, by the next `sweep_scratch`.

    The process holds a lock on its folder, which the system frees however the process ends. Unlike
    a process number, it cannot be mistaken for that of a later process or of another container.
    """

    def __init__(self) -> None:
        sweep_scratch()
        self.folder, lock = _new()
        self._end = weakref.finalize(self, _delete, self.folder, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self._end()


@cache
def scratch_of_process() -> Scratch:
    """One that stays until the process ends, for libraries that keep to the first they get."""
    return Scratch()


def sweep_scratch() -> None:
    """Deletes the temporary folders that killed processes left behind."""
    for folder in list(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        # not there any more, of another user, in use, or on a file system without such locks
        with suppress(OSError):
            lock = _open(folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
            finally:
                os.close(lock)


def _new() -> tuple[Path, int]:
    """A new folder, and the open file that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # until it is locked, another process may take it for one left behind, and delete it
        with suppress(FileNotFoundError):
            lock = _open(folder)
            if _is_free(lock) and folder.exists():
                return folder, lock
            os.close(lock)


def _open(folder: Path) -> int:
    # in a place where everybody may write, a name may be a link to somewhere else
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_free(lock: int) -> bool:
    """Locks a new folder; False if another process is deleting it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # where the file system has no such locks, nobody can take it for one left behind
        return error.errno not in (errno.EWOULDBLOCK, errno.EINTR)
    return True


def _delete(folder: Path, lock: int, process: int) -> None:
    if os.getpid() == process:  # not one forked from it
        remove(folder)
    os.close(lock)
