from __future__ import annotations

import threading

import pytest

from tasklm.train.prefetch import DEPTH, Prefetcher


def test_items_come_in_order_from_one_other_thread() -> None:
    threads: set[int] = set()

    def prepare(number: int) -> int:
        threads.add(threading.get_ident())
        return number * number

    ahead = Prefetcher(prepare, 3, 20)
    assert list(ahead) == [number * number for number in range(3, 20)]
    ahead.close()
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_an_error_comes_after_the_items_before_it() -> None:
    def prepare(number: int) -> int:
        if number == 2:
            raise ValueError("no batch 2")
        return number

    ahead, seen = Prefetcher(prepare, 0, 9), []
    with pytest.raises(ValueError, match="no batch 2"):
        for item in ahead:
            seen.append(item)
    ahead.close()
    assert seen == [0, 1]


def test_it_prepares_a_few_items_and_then_waits_for_room_until_closed() -> None:
    begun: list[int] = []
    full = threading.Event()

    def prepare(number: int) -> int:
        begun.append(number)
        if number == DEPTH:  # as many as there is room for are ready, and none was taken
            full.set()
        return number

    ahead = Prefetcher(prepare, 0, 1_000_000)
    assert full.wait(10)
    thread = ahead._thread
    thread.join(0.1)
    assert thread.is_alive() and begun == list(range(DEPTH + 1))  # blocked: the queue is full
    ahead.close()
    assert not thread.is_alive()
    assert len(begun) <= DEPTH + 2  # what was under way at most, not the million


def test_closing_twice_or_after_the_end_is_harmless() -> None:
    ahead = Prefetcher(lambda number: number, 0, 3)
    assert list(ahead) == [0, 1, 2]
    ahead.close()
    ahead.close()
    assert not ahead._thread.is_alive()
