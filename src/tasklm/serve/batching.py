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
from itertools import chain, islice
from typing import Any, Generic, TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")


class QueueFull(Exception):
    """The queue of inputs is full."""


@dataclass(frozen=True)
class _Job(Generic[Input, Output]):
    inputs: Sequence[Input]
    answers: asyncio.Future[list[Output]]
    arrived: float


@dataclass(frozen=True)
class BatchLimits:
    """The number of threads, the size of batches, and the limits of the queue."""

    workers: int  # threads
    most: int  # inputs of a batch
    window: float  # seconds in which the inputs of a batch are collected
    waiting: int  # inputs that may wait in total


class Batcher(Generic[Input, Output]):
    """Collects inputs until a batch is full or has waited long enough, and answers them together.

    `answer` returns one answer per input. `counted` receives the size of every answered batch,
    `started` runs first in each thread.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Input]], list[Output]],
        limits: BatchLimits,
        *,
        counted: Callable[[int], None] = lambda size: None,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._counted = counted
        self._pool = ThreadPoolExecutor(limits.workers, "model", initializer=started)
        self._free = limits.workers
        self._jobs: deque[_Job[Input, Output]] = deque()
        self._running: set[asyncio.Future[list[list[Output] | Exception]]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = 0  # inputs

    async def answers(self, inputs: Sequence[Input]) -> list[Output]:
        """The answers to a request's inputs; raises QueueFull, and whatever `answer` raises."""
        if self.waiting and self.waiting + len(inputs) > self._limits.waiting:
            raise QueueFull
        loop = asyncio.get_running_loop()
        parts: list[asyncio.Future[list[Output]]] = []
        now = loop.time()
        # a single request can use all workers
        share = -(-len(inputs) // self._limits.workers)
        size = max(1, min(self._limits.most, share))
        for start in range(0, len(inputs), size):
            job = _Job[Input, Output](inputs[start : start + size], loop.create_future(), now)
            self._jobs.append(job)
            self.waiting += len(job.inputs)
            parts.append(job.answers)
        self._hand_over()
        try:
            outcomes = await asyncio.gather(*parts, return_exceptions=True)
        except asyncio.CancelledError:
            self._forget_given_up()
            raise
        answers: list[Output] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            answers += outcome
        return answers

    async def close(self) -> None:
        """Waits until all accepted inputs are answered and the threads have ended."""
        self._forget_given_up()
        while self._jobs or self._running:
            pending: list[asyncio.Future[Any]] = list(self._running)
            pending += [job.answers for job in self._jobs]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        self._pool.shutdown()

    def _forget_given_up(self) -> None:
        """Drops jobs whose clients have gone."""
        self._jobs = deque(job for job in self._jobs if not job.answers.done())
        self.waiting = sum(len(job.inputs) for job in self._jobs)

    def _hand_over(self) -> None:
        """Hands batches to free workers once they are full or have waited long enough."""
        loop = asyncio.get_running_loop()
        # when the last dispatched job arrived: the parts of a request stay together
        handed = -1.0
        while self._free and self._jobs:
            arrived = self._jobs[0].arrived
            left = arrived + self._limits.window - loop.time()
            if self.waiting < self._limits.most and left > 0 and arrived != handed:
                if self._timer is None:
                    self._timer = loop.call_later(left, self._time_is_up)
                return
            share = -(-self.waiting // self._free)
            self._free -= 1
            jobs = self._batch(min(self._limits.most, share))
            handed = jobs[-1].arrived
            running = loop.run_in_executor(self._pool, self._answered, jobs)
            self._running.add(running)
            running.add_done_callback(partial(self._deliver, jobs))

    def _time_is_up(self) -> None:
        self._timer = None
        self._hand_over()

    def _batch(self, size: int) -> list[_Job[Input, Output]]:
        """The first jobs, with about `size` inputs and never more than `most`."""
        jobs: list[_Job[Input, Output]] = []
        count = 0
        while self._jobs:
            longer = count + len(self._jobs[0].inputs)
            if jobs and (count >= size or longer > self._limits.most):
                break
            jobs.append(self._jobs.popleft())
            count = longer
        self.waiting -= count
        return jobs

    def _answered(self, jobs: Sequence[_Job[Input, Output]]) -> list[list[Output] | Exception]:
        """The answers of each job, or its error, which does not affect the others."""
        inputs = list(chain.from_iterable(job.inputs for job in jobs))
        try:
            answers = iter([answer for _, answer in zip(inputs, self._answer(inputs), strict=True)])
        # panics of Rust libraries are not Exceptions; no request may ever wait forever
        except BaseException as error:
            if len(jobs) > 1:
                return list(chain.from_iterable(self._answered([job]) for job in jobs))
            if isinstance(error, Exception):
                return [error]
            return [RuntimeError(repr(error))]
        return [list(islice(answers, len(job.inputs))) for job in jobs]

    def _deliver(
        self,
        jobs: Sequence[_Job[Input, Output]],
        done: asyncio.Future[list[list[Output] | Exception]],
    ) -> None:
        self._free += 1
        self._running.discard(done)
        answered = 0
        for job, outcome in zip(jobs, done.result(), strict=True):
            given_up = job.answers.done()
            if isinstance(outcome, Exception):
                if not given_up:
                    job.answers.set_exception(outcome)
                continue
            answered += len(outcome)
            if not given_up:
                job.answers.set_result(outcome)
        if answered:
            self._counted(answered)
        self._hand_over()
