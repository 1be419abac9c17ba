"""The time of a command and the slowness of a machine, by clocks that tests set."""

from __future__ import annotations

import pytest

from tasklm.console import clock as clocks
from tasklm.console.clock import SLOWEST, Clock


class Times:
    """The time passed and the time in which this thread computed."""

    def __init__(self) -> None:
        self.passed, self.computed = 1000.0, 7.0

    def monotonic(self) -> float:
        return self.passed

    def thread_time(self) -> float:
        return self.computed


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    own = Times()
    monkeypatch.setattr(clocks, "time", own)
    return own


def test_it_counts_from_its_beginning_or_the_last_restart(times: Times) -> None:
    clock = Clock()
    times.passed += 5
    assert clock.seconds() == 5
    clock.restart()
    times.passed += 2
    assert clock.seconds() == 2


@pytest.mark.parametrize(
    ("passed", "computed", "slowness"),
    [(10, 10, 1.0), (10, 12, 1.0), (10, 5, 2.0), (10, 0, SLOWEST), (0, 0, 1.0)],
)
def test_slowness_is_the_time_passed_by_the_time_computed(
    times: Times, passed: float, computed: float, slowness: float
) -> None:
    clock = Clock()
    times.passed += passed
    times.computed += computed
    clock.restart()  # which does not matter to it
    assert clock.slowness() == slowness
