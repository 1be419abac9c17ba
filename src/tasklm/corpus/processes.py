"""The same work on many pieces of text by several processes or threads, with
the results in order.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

from tasklm.errors import RunError

_IDLE = 30  # seconds without work after which a process ends
# seconds between checks whether the parent run is still alive
_LOOK_EVERY = 1.0

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processes_for(size: int, worth: int) -> int:
    """The number of processes for work of a size: one per `worth` of it, at most one per usable
    core.
    """
    return max(1, min(usable_cores(), size // worth))


def in_order(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], processes: int
) -> Iterator[Result]:
    """Yields the result of each piece, in the order of the pieces; one process means this one.

    At most two pieces per process, or their results, are in flight, so that memory does not grow
    with their number. New processes import what `work` needs and inherit nothing: forking a process
    with threads can deadlock.
    """
    if processes == 1:
        yield from map(work, pieces)
        return
    # not the standard library's, whose new processes run the user's main script again unless it is
    # guarded
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]
    from joblib.externals.loky.process_executor import TerminatedWorkerError  # type: ignore[import-untyped]

    try:
        with ProcessPoolExecutor(
            processes, timeout=_IDLE, initializer=_follow_parent, initargs=(os.getpid(),)
        ) as pool:
            yield from results_in_order(pool, work, pieces, 2 * processes)
    except TerminatedWorkerError:
        remedy = (
            "It may have run out of memory: free some, "
            "or allow fewer cores (taskset -c 0-3 tasklm …), and run the same command again."
        )
        raise RunError(f"a process that worked on the corpus was killed. {remedy}") from None


def results_in_order(
    pool: Executor, work: Callable[[Piece], Result], pieces: Iterable[Piece], under_way: int
) -> Iterator[Result]:
    """Yields a pool's result for each piece, in order, with a limited number started beyond the
    awaited one.
    """
    ahead: deque[Future[Result]] = deque()
    try:
        for piece in pieces:
            ahead.append(pool.submit(work, piece))
            if len(ahead) > under_way:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


def _follow_parent(parent: int) -> None:
    """Leaves interrupts to the parent, and ends when the parent has ended, even without notice.

    It polls instead of using Linux's signal for this, which fires when the *thread* that started
    the process ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
