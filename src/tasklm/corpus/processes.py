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
# seconds after which a process looks whether the run that it works for still lives
_LOOK_EVERY = 1.0

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processes_for(size: int, worth: int) -> int:
    """How many processes to share work of a size among: one per `worth` of it, no more than the
    cores that may be used.
    """
    return max(1, min(usable_cores(), size // worth))


def in_order(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], processes: int
) -> Iterator[Result]:
    """Yields the result of each piece, in the order of the pieces; one process means this one.

    At most two pieces per process, or their results, are under way, so that memory does not grow
    with their number. New processes import what `work` needs and inherit nothing: a fork of one
    that has threads can lock up.
    """
    if processes == 1:
        yield from map(work, pieces)
        return
    # not of the standard library, whose fresh processes run the user's main script again unless it
    # is written for that
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
        raise RunError(
            f"a process that worked on the corpus was ended from outside. {remedy}"
        ) from None


def results_in_order(
    pool: Executor, work: Callable[[Piece], Result], pieces: Iterable[Piece], under_way: int
) -> Iterator[Result]:
    """Yields what a pool makes of each piece, in the order of the pieces, with at most so many
    begun beyond the one that is waited for.
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
    """Leaves interrupts to the parent, and ends when that has ended, which may be too sudden to say
    so.

    A look now and then, in place of Linux's signal for it: that one comes when the *thread* ends
    that started the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
