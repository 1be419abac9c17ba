"""Limits on time and memory, for what must need little of both."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 120  # a hang, on however busy a machine
MORE_MEMORY = 2 << 30  # bytes above what the process has already


@contextmanager
def limited(seconds: int = SECONDS, more: int = MORE_MEMORY) -> Iterator[None]:
    """Ends what is inside with an error when it takes too long, or too much memory; for the main
    thread."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it hangs: {seconds} seconds are over")

    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, hangs)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
