"""Locks on files, which the system frees with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasklm.storage.files import full_disk_is_clear


@contextmanager
def alone(file: Path, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Holds a lock file, and says whether it could: another process may have it. With `waiting`,
    which is called then, it waits until that one is done.
    """
    with full_disk_is_clear(file.parent):
        lock = file.open("a", encoding="utf-8")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is None:
                yield False
                return
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield True
