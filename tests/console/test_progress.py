from __future__ import annotations

import pytest

from tasklm.console import progress
from tasklm.console.progress import Bar, Pace


class Clock:
    """The time that a bar sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_steady_work_has_a_rate_after_a_few_seconds() -> None:
    pace, known = Pace(), []
    for second in range(8):
        pace.move(second, 10 * second)
        known.append(pace.rate())
    assert known == [None, None, None, *[pytest.approx(10)] * 5]


def test_what_an_earlier_process_did_says_nothing_about_the_rate() -> None:
    pace = Pace()
    for second in range(5):
        pace.move(second, 6000 + 2 * second)
    assert pace.rate() == pytest.approx(2)


def test_there_is_no_estimate_from_steps_that_are_compiled(clock: Clock) -> None:
    """Two steps take a minute and half a minute, the others a hundredth of a second."""
    bar, estimates = Bar("stage 1", 5000), []
    for step in range(1, 5001):
        clock.now += {1: 60.0, 2: 30.0}.get(step, 0.01)
        bar.at(step)
        if bar.left is not None:
            estimates.append((step, bar.left))
    assert estimates
    assert all(left == pytest.approx(0.01 * (5000 - step), abs=0.2) for step, left in estimates)


def test_slow_steps_have_a_rate_too(clock: Clock) -> None:
    bar = Bar("stage 1", 100)
    for step in range(1, 5):
        clock.now += 40.0
        bar.at(step)
    assert bar.left == pytest.approx(96 * 40)


def test_the_rate_is_that_of_the_last_seconds(clock: Clock) -> None:
    bar = Bar("search", 10_000)
    for _ in range(60):
        clock.now += 1
        bar.advance(10)
    for _ in range(30):
        clock.now += 1
        bar.advance(40)
    assert bar.left == pytest.approx((10_000 - 1800) / 40)


def test_work_of_unknown_size_has_neither_share_nor_time_left(clock: Clock) -> None:
    bar = Bar("reading")
    for _ in range(9):
        clock.now += 1
        bar.advance(10)
    assert bar.share is None and bar.left is None and bar.values()["rate"] == pytest.approx(10)


def test_a_note_stays_until_there_is_another() -> None:
    bar = Bar("stage 1", 10)
    bar.at(1, "loss 3.5")
    bar.at(2)
    assert (bar.position, bar.note, bar.share) == (2, "loss 3.5", 0.2)
    assert Bar("stage 1", of="random selection").name == "random selection: stage 1"
