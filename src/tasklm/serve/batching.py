"""Requests of many connections in one model batch.

All state belongs to the event loop's thread; only `answer` runs in worker threads, one batch in
each at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")


class QueueFull(Exception):
    """As many inputs wait as may wait."""


@dataclass(frozen=True)
class _Job(Generic[Given, Found]):
    inputs: Sequence[Given]
    answers: asyncio.Future[list[Found]]
    arrived: float


class Batcher(Generic[Given, Found]):
    """Collects inputs for at most `window` seconds, or until there are `most`, and answers them
    together.

    `answer` gives one answer per input; `workers` threads call it. `waiting`: inputs that may wait
    in all. `counted` is told the size of every batch that was answered, `started` runs first in
    each thread.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Given]], list[Found]],
        *,
        workers: int,
        most: int,
        window: float,
        waiting: int,
        counted: Callable[[int], None] = lambda size: None,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self._answer = answer
        self._most = most
        self._window = window
        self._limit = waiting
        self._counted = counted
        self._pool = ThreadPoolExecutor(workers, "model", initializer=started)
        self._workers = self._free = workers
        self._jobs: deque[_Job[Given, Found]] = deque()
        self._running: set[asyncio.Future[list[list[Found] | Exception]]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = 0  # inputs

    async def answers(self, inputs: Sequence[Given]) -> list[Found]:
        """The answers of a request's inputs, in order; raises QueueFull where too many wait, and
        what `answer` raises.
        """
        if self.waiting and self.waiting + len(inputs) > self._limit:
            raise QueueFull
        loop = asyncio.get_running_loop()
        parts: list[asyncio.Future[list[Found]]] = []
        now = loop.time()
        size = max(
            1, min(self._most, -(-len(inputs) // self._workers))
        )  # so that a request by itself keeps all workers busy
        for start in range(0, len(inputs), size):
            job = _Job[Given, Found](inputs[start : start + size], loop.create_future(), now)
            self._jobs.append(job)
            self.waiting += len(job.inputs)
            parts.append(job.answers)
        self._hand_over()
        try:
            found = await asyncio.gather(*parts, return_exceptions=True)
        except asyncio.CancelledError:
            self._forget_given_up()
            raise
        for part in found:
            if isinstance(part, BaseException):
                raise part
        return [one for part in found if not isinstance(part, BaseException) for one in part]

    async def close(self) -> None:
        """When all that was taken is answered and the threads have ended."""
        self._forget_given_up()
        while self._jobs or self._running:
            pending: list[asyncio.Future[Any]] = [
                *self._running,
                *(job.answers for job in self._jobs),
            ]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        self._pool.shutdown()

    def _forget_given_up(self) -> None:
        """Drops jobs for whose answers nobody waits any more."""
        self._jobs = deque(job for job in self._jobs if not job.answers.done())
        self.waiting = sum(len(job.inputs) for job in self._jobs)

    def _hand_over(self) -> None:
        """Gives the free workers their batches, as soon as these are full or have waited long
        enough.
        """
        loop = asyncio.get_running_loop()
        handed = (
            -1.0
        )  # when the last that was handed over had arrived: the parts of a request go together
        while self._free and self._jobs:
            arrived = self._jobs[0].arrived
            left = arrived + self._window - loop.time()
            if self.waiting < self._most and left > 0 and arrived != handed:
                if self._timer is None:
                    self._timer = loop.call_later(left, self._time_is_up)
                return
            self._free -= 1
            jobs = self._batch(min(self._most, -(-self.waiting // (self._free + 1))))
            handed = jobs[-1].arrived
            running = loop.run_in_executor(self._pool, self._answered, jobs)
            self._running.add(running)
            running.add_done_callback(partial(self._deliver, jobs))

    def _time_is_up(self) -> None:
        self._timer = None
        self._hand_over()

    def _batch(self, size: int) -> list[_Job[Given, Found]]:
        """The first jobs, with about `size` inputs and never more than `most`."""
        jobs: list[_Job[Given, Found]] = []
        count = 0
        while self._jobs and (
            not jobs or (count < size and count + len(self._jobs[0].inputs) <= self._most)
        ):
            jobs.append(self._jobs.popleft())
            count += len(jobs[-1].inputs)
        self.waiting -= count
        return jobs

    def _answered(self, jobs: Sequence[_Job[Given, Found]]) -> list[list[Found] | Exception]:
        """The answers of each job, or what went wrong with it; what is wrong with one must not fail
        the others.
        """
        given = [one for job in jobs for one in job.inputs]
        try:
            found = iter([answer for _, answer in zip(given, self._answer(given), strict=True)])
        # panics of libraries in Rust are no Exception; whatever comes, requests must not wait for
        # ever
        except BaseException as error:
            if len(jobs) > 1:
                return [one for job in jobs for one in self._answered([job])]
            return [error if isinstance(error, Exception) else RuntimeError(repr(error))]
        return [list(islice(found, len(job.inputs))) for job in jobs]

    def _deliver(
        self,
        jobs: Sequence[_Job[Given, Found]],
        done: asyncio.Future[list[list[Found] | Exception]],
    ) -> None:
        self._free += 1
        self._running.discard(done)
        answered = 0
        for job, found in zip(jobs, done.result(), strict=True):
            if isinstance(found, Exception):
                if not job.answers.done():
                    job.answers.set_exception(found)
                continue
            answered += len(found)
            if not job.answers.done():
                job.answers.set_result(found)
        if answered:
            self._counted(answered)
        self._hand_over()
