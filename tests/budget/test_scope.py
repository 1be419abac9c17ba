"""What the time left pays for: text, the task's data, or the linear model alone."""

from __future__ import annotations

import pytest

from tasklm.budget import rules
from tasklm.budget.scope import LINEAR, TASK, TEXT, Minutes, Scope, reads_text, scope_within


@pytest.mark.parametrize(
    ("minutes", "spent", "slowness", "text", "reach"),
    [
        (1, 5, 1.0, 1.0, TEXT),
        (1, 5, 1.0, 10.0, TASK),  # 52 MB of text: a minute is too short for them
        (2, 5, 1.0, 10.0, TEXT),
        (2, 70, 1.0, 10.0, TASK),  # the linear model took long
        (2, 5, 2.5, 10.0, TASK),  # and so would text, on a busy machine
        (1, 35, 1.0, 0.0, LINEAR),
        (1, 15, 2.0, 0.0, LINEAR),
        (1, 90, 1.0, 10.0, LINEAR),
        (20, 35, 4.0, 10.0, TEXT),
        (1, 5, 1.0, 0.0, TEXT),  # there is no text that could be left out
    ],
)
def test_the_time_left_decides(
    minutes: float, spent: float, slowness: float, text: float, reach: str
) -> None:
    scope = scope_within(Minutes(60.0 * minutes, spent, slowness), text, linear=True)
    assert (scope.reach, scope.slowness) == (reach, slowness)
    assert bool(scope.reason) == (reach != TEXT)
    assert Scope.from_dict(scope.to_dict()) == scope


def test_without_a_linear_model_there_is_always_a_network() -> None:
    late = Minutes(60.0, 90.0)
    assert scope_within(late, 10.0, linear=False).reach == TASK
    assert scope_within(late, 0.0, linear=False) == Scope()


@pytest.mark.parametrize("slowness", [1.0, 1.7, 4.0])
@pytest.mark.parametrize(("spent", "text"), [(5.0, 10.0), (40.0, 0.0), (55.0, 300.0)])
def test_the_minutes_that_it_names_are_enough_and_no_more(
    spent: float, text: float, slowness: float
) -> None:
    short = Minutes(60.0, spent, slowness)
    scope, linear = scope_within(short, text, linear=True), True
    while scope.reach != TEXT:
        named = int(scope.reason.rsplit(maxsplit=1)[-1])
        assert named > 1
        before, wanted = (
            scope.reach,
            scope_within(Minutes(60.0 * named, spent, slowness), text, linear),
        )
        assert wanted.reach != before
        less = scope_within(Minutes(60.0 * (named - 1), spent, slowness), text, linear)
        assert less.reach in (before, LINEAR)
        scope = wanted


def test_a_reason_is_one_plain_line() -> None:
    linear = scope_within(Minutes(60.0, 48.2), 0.0, linear=True)
    assert linear.reason == (
        "no network is trained: 48 s of 1 min are spent; to train one, give --minutes 2"
    )
    task = scope_within(Minutes(60.0, 5.0), 10.0, linear=True)
    assert task.reason == (
        "no text is used: too little time is left to read it and to train on it; "
        "to use it, give --minutes 2"
    )


def test_what_comes_after_training_is_not_given_away() -> None:
    end = rules.END_SECONDS
    assert Minutes(100.0, 30.0).left == pytest.approx(100 * (1 - rules.END_SHARE) - end - 30)
    assert Minutes(100.0, 30.0, 2.0).left == pytest.approx(Minutes(100.0, 30.0).left - end)


def test_a_forecast_counts_as_a_run_counts_that_has_spent_nothing() -> None:
    for text in (0.0, 5.0, 60.0, 400.0, 4000.0):
        for minutes in (1.0, 5.0, 20.0, 60.0):
            run = scope_within(Minutes(60 * minutes, 0.0), text, True)
            assert reads_text(minutes, text) == (run.reach == TEXT or not text)
