"""The queue: which inputs are answered together, by how many threads, and what happens to those
that cannot be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tasklm.serve.batching import Batcher, BatchLimits, QueueFull


class Doubler:
    """Answers a number by its double, and keeps the batches that it was given; negative numbers
    raise.
    """

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        assert self.go.wait(10)
        if bad := [number for number in numbers if number < 0]:
            raise ValueError(f"negative: {bad[0]}")
        return [2 * number for number in numbers]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_requests_that_come_together_are_answered_together_and_in_order() -> None:
    async def test() -> None:
        double, sizes = Doubler(), list[int]()
        double.go.set()
        queue = Batcher(
            double, BatchLimits(workers=1, most=64, window=0.05, waiting=100), counted=sizes.append
        )
        requests = [[n, n + 100] for n in range(10)]
        found = await asyncio.gather(*map(queue.answers, requests))
        assert found == [[2 * n, 2 * n + 200] for n in range(10)]
        assert double.batches == [
            [number for request in requests for number in request]
        ] and sizes == [20]
        assert await queue.answers([]) == [] and queue.waiting == 0
        await queue.close()

    run(test())


def test_a_full_batch_does_not_wait_and_a_large_request_is_cut() -> None:
    async def test() -> None:
        double = Doubler()
        double.go.set()
        queue = Batcher(
            double, BatchLimits(workers=1, most=4, window=1000.0, waiting=100)
        )  # seconds that nobody waits
        assert await queue.answers(range(8)) == [2 * n for n in range(8)]
        assert double.batches == [[0, 1, 2, 3], [4, 5, 6, 7]]
        await queue.close()

    run(test())


def test_a_batch_never_has_more_inputs_than_it_may() -> None:
    async def test() -> None:
        double = Doubler()
        queue = Batcher(double, BatchLimits(workers=1, most=5, window=0.0, waiting=100))
        first = asyncio.ensure_future(queue.answers([0]))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(queue.answers([n, n, n])) for n in range(1, 5)]
        await asyncio.sleep(0)
        double.go.set()
        assert [await one for one in (first, *others)] == [[0], [2] * 3, [4] * 3, [6] * 3, [8] * 3]
        assert double.batches == [[0], [1] * 3, [2] * 3, [3] * 3, [4] * 3]
        await queue.close()

    run(test())


def test_two_workers_run_at_the_same_time_and_share_what_waits() -> None:
    async def test() -> None:
        meeting, batches = threading.Barrier(2), list[int]()

        def answer(numbers: Sequence[int]) -> list[int]:
            meeting.wait(10)  # passes only when both threads are here
            batches.append(len(numbers))
            return list(numbers)

        queue = Batcher(answer, BatchLimits(workers=2, most=64, window=0.02, waiting=100))
        found = await asyncio.gather(*(queue.answers([n]) for n in range(10)))
        assert found == [[n] for n in range(10)] and batches == [5, 5]
        await queue.close()

    run(test())


def test_one_wrong_input_fails_its_own_request_alone() -> None:
    async def test() -> None:
        double, sizes = Doubler(), list[int]()
        double.go.set()
        queue = Batcher(
            double, BatchLimits(workers=1, most=64, window=0.02, waiting=100), counted=sizes.append
        )
        found = await asyncio.gather(
            *(queue.answers([n, 5]) for n in (1, -2, 3)), return_exceptions=True
        )
        assert found[0] == [2, 10] and found[2] == [6, 10]
        assert isinstance(found[1], ValueError) and str(found[1]) == "negative: -2"
        assert double.batches == [[1, 5, -2, 5, 3, 5], [1, 5], [-2, 5], [3, 5]] and sizes == [4]
        await queue.close()

    run(test())


def test_a_full_queue_refuses_and_takes_again_later() -> None:
    async def test() -> None:
        double = Doubler()
        queue = Batcher(double, BatchLimits(workers=1, most=2, window=0.0, waiting=4))
        taken = [
            asyncio.ensure_future(queue.answers([n, n])) for n in range(3)
        ]  # one runs, two wait
        await asyncio.sleep(0)
        assert queue.waiting == 4
        with pytest.raises(QueueFull):
            await queue.answers([9])
        double.go.set()
        assert [await one for one in taken] == [[0, 0], [2, 2], [4, 4]] and queue.waiting == 0
        assert await queue.answers(range(6)) == [
            0,
            2,
            4,
            6,
            8,
            10,
        ]  # where nothing waits a request larger than the queue is taken
        await queue.close()

    run(test())


def test_closing_answers_what_was_taken() -> None:
    async def test() -> None:
        double = Doubler()
        queue = Batcher(double, BatchLimits(workers=2, most=2, window=1000.0, waiting=100))
        taken = [asyncio.ensure_future(queue.answers([n, n])) for n in range(7)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(queue.close())
        await asyncio.sleep(0.05)
        assert not closing.done() and not any(one.done() for one in taken)
        double.go.set()
        await closing
        assert [await one for one in taken] == [[2 * n, 2 * n] for n in range(7)]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("model")]

    run(test())


def test_a_request_by_itself_keeps_all_workers_busy() -> None:
    async def test() -> None:
        meeting = threading.Barrier(3)

        def answer(numbers: Sequence[int]) -> list[int]:
            meeting.wait(10)  # passes only when three threads are here
            return [2 * number for number in numbers]

        queue = Batcher(
            answer, BatchLimits(workers=3, most=7, window=1000.0, waiting=100)
        )  # seconds that nobody waits
        assert await queue.answers(range(7)) == [2 * n for n in range(7)]
        await queue.close()

    run(test())


def test_nothing_is_computed_for_requests_that_were_given_up() -> None:
    async def test() -> None:
        double = Doubler()
        queue = Batcher(double, BatchLimits(workers=1, most=2, window=0.0, waiting=100))
        taken = [asyncio.ensure_future(queue.answers([n, n])) for n in range(4)]
        await asyncio.sleep(0)
        for one in taken[:3]:
            one.cancel()
        closing = asyncio.ensure_future(queue.close())
        await asyncio.wait(taken[:3])
        assert queue.waiting == 2 and not closing.done()
        double.go.set()
        await closing
        assert double.batches == [[0, 0], [3, 3]] and await taken[3] == [6, 6]

    run(test())


class Panic(BaseException):
    """Such as libraries in Rust raise it."""


def test_whatever_goes_wrong_is_told() -> None:
    async def test() -> None:
        def answer(numbers: Sequence[int]) -> list[int]:
            if -1 in numbers:
                raise Panic("at the disco")
            return [number for number in numbers if number != -2]

        queue = Batcher(answer, BatchLimits(workers=1, most=64, window=0.02, waiting=100))
        found = await asyncio.gather(
            *(queue.answers([n, 5]) for n in (1, -1, -2, 3)), return_exceptions=True
        )
        assert found[0] == [1, 5] and found[3] == [3, 5]
        assert isinstance(found[1], RuntimeError) and "at the disco" in str(found[1])
        assert isinstance(found[2], ValueError)  # one answer for two inputs
        await queue.close()

    run(test())
