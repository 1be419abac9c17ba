"""The time that a command takes, and how much of it the machine worked for the command."""

from __future__ import annotations

import time

SLOWEST = 4.0  # a slowness beyond this says more about one long wait than about the machine


class Clock:
    """Runs from when it was made; `restart` begins to count anew."""

    def __init__(self) -> None:
        self._began = self._since = time.monotonic()
        self._worked = time.thread_time()

    def seconds(self) -> float:
        """The seconds since the beginning or the last restart."""
        return time.monotonic() - self._since

    def restart(self) -> None:
        """Counts from now on."""
        self._since = time.monotonic()

    def slowness(self) -> float:
        """How many times longer work took so far than alone on an idle machine: the time passed by
        that in which this thread computed. Above 1 where other programs compute, or files come
        from a cold disk.
        """
        worked = time.thread_time() - self._worked
        passed = time.monotonic() - self._began
        return min(SLOWEST, max(1.0, passed / max(worked, 1e-9)))
