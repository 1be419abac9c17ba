"""Work prepared in another thread, so that the device never waits for its next batch."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
DEPTH = 4  # items that wait


class Prefetcher(Generic[Item]):
    """Iterates over `prepare(number)` for first … last − 1, which one thread calls in order."""

    def __init__(self, prepare: Callable[[int], Item], first: int, last: int) -> None:
        self._prepare, self._numbers = prepare, range(first, last)
        self._ready: queue.Queue[Item | BaseException] = queue.Queue(DEPTH)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        for _ in self._numbers:
            item = self._ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Ends the thread; unused results are dropped."""
        self._ended.set()
        while self._thread.is_alive():
            try:
                self._ready.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)

    def _work(self) -> None:
        try:
            for number in self._numbers:
                if self._ended.is_set():
                    return
                self._ready.put(self._prepare(number))
        except BaseException as error:  # passed to the iterating thread
            self._ready.put(error)
