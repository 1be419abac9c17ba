"""Temporary folders of tests in memory: a run syncs each of its files, at which disks are slow."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 6 << 30  # bytes that must be free there; all tests together need less than a tenth of it


def use_memory() -> None:
    """Has pytest and `tempfile` make folders in memory, where there is room and nobody has chosen
    another place. Workers and commands that are started later take part.
    """
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or "TMPDIR" in os.environ or not _has_room():
        return
    folder = MEMORY / f"tasklm-tests-of-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ |= {"PYTEST_DEBUG_TEMPROOT": str(folder), "TMPDIR": str(folder)}
    tempfile.tempdir = None  # chosen anew


def _has_room() -> bool:
    """Whether there is such a place, with as much room and as much memory free."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    there = os.statvfs(MEMORY)
    lines = Path("/proc/meminfo").read_text().splitlines()
    values = dict(line.split(":") for line in lines)
    available = int(values["MemAvailable"].split()[0]) * 1024
    return min(there.f_bavail * there.f_frsize, available) >= ROOM
