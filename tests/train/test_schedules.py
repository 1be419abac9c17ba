from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import SCHEDULES
from tasklm.train.optim.schedules import Schedule, steps_that_fit

# those that end at 0; the other one is tested beside the optimiser that it came with
ENDING = [shape for shape in SCHEDULES if shape != "root"]


def shares(schedule: Schedule, first: int = 0) -> list[float]:
    return [schedule.share(step) for step in range(first, schedule.steps)]


def test_the_linear_shape_by_hand() -> None:
    schedule = Schedule("linear", 100, 0.1)
    assert schedule.share(0) == pytest.approx(0.1) and schedule.share(9) == pytest.approx(1.0)
    assert schedule.share(10) == pytest.approx(1.0) and schedule.share(55) == pytest.approx(0.5)
    assert schedule.share(99) == pytest.approx(1 / 90) and schedule.share(100) == 0.0


@pytest.mark.parametrize(
    ("steps", "warmup"), [(1, 0.1), (2, 0.5), (7, 0.3), (100, 0.0), (997, 0.06), (50, 0.99)]
)
def test_the_linear_shape_is_a_rise_and_a_fall_of_whole_steps(steps: int, warmup: float) -> None:
    rising = max(1, round(warmup * steps))
    by_hand = [
        (step + 1) / rising if step < rising else (steps - step) / (steps - rising)
        for step in range(steps)
    ]
    assert shares(Schedule("linear", steps, warmup)) == pytest.approx(by_hand)


def test_the_cosine_shape_by_hand() -> None:
    schedule = Schedule("cosine", 100, 0.2)
    assert schedule.share(0) == pytest.approx(0.05) and schedule.share(19) == pytest.approx(1.0)
    assert schedule.share(40) == pytest.approx(
        (1 + math.cos(math.pi / 4)) / 2
    )  # a quarter of the way down
    assert schedule.share(60) == pytest.approx(0.5)
    assert 0 < schedule.share(99) < 0.001


def test_the_constant_shape_by_hand() -> None:
    schedule = Schedule("constant", 100, 0.1, decay=0.25)
    assert schedule.share(4) == pytest.approx(0.5)
    assert [schedule.share(step) for step in (9, 40, 75)] == pytest.approx([1.0, 1.0, 1.0])
    assert schedule.share(80) == pytest.approx(0.8) and schedule.share(99) == pytest.approx(0.04)


@pytest.mark.parametrize("steps", [60, 400])
def test_a_linear_fall_goes_on_from_where_it_is(steps: int) -> None:
    schedule = Schedule("linear", 100, 0.1)
    before = schedule.share(40)
    schedule.replan(40, steps)
    assert schedule.share(40) == pytest.approx(before)
    assert schedule.share((40 + steps) // 2) == pytest.approx(before / 2)
    assert (
        schedule.share(steps - 1) == pytest.approx(before / (steps - 40))
        and schedule.share(steps) == 0.0
    )


@pytest.mark.parametrize("shape", ENDING)
@pytest.mark.parametrize("step", [1, 30, 60, 500, 790, 950])
@pytest.mark.parametrize("steps", [980, 1000, 1400])
def test_replanning_never_jumps(shape: str, step: int, steps: int) -> None:
    schedule = Schedule(shape, 1000, 0.1)
    before = shares(schedule)[:step]
    schedule.replan(step, steps)
    after = before + shares(schedule, step)
    assert len(after) == steps and max(after) == pytest.approx(1.0) and 0 < after[-1] < 0.03
    slope = max(1 / 100, 1 / 200, math.pi / 1800) * max(
        1.0, (1000 - step) / (steps - step)
    )  # the steepest part of the shape, sped up
    assert max(abs(a - b) for a, b in pairwise(after)) <= slope + 1e-9


def test_a_schedule_shortened_in_its_rise_still_reaches_the_peak() -> None:
    schedule = Schedule("linear", 1000, 0.1)
    before = shares(schedule)[:20]
    schedule.replan(20, 500)
    after = before + shares(schedule, 20)
    assert max(after) == 1.0 and after[499] < 0.01
    assert max(abs(a - b) for a, b in pairwise(after)) < 0.021
    schedule = Schedule("linear", 1000, 0.5)
    schedule.replan(20, 100)
    assert max(shares(schedule, 20)) == 1.0


def test_shortened_and_lengthened_again_it_is_what_it_was() -> None:
    schedule = Schedule("cosine", 1000, 0.1)
    straight = shares(schedule)
    schedule.replan(300, 400)
    schedule.replan(300, 1000)
    assert shares(schedule, 300) == pytest.approx(straight[300:])


def test_a_restored_schedule_goes_on_bit_for_bit() -> None:
    schedule = Schedule("cosine", 997, 0.06)
    schedule.replan(123, 1311)
    schedule.replan(471, 777)
    other = Schedule("cosine", 5, 0.06)
    other.restore(json.loads(json.dumps(schedule.state())))
    assert shares(other, 471) == shares(schedule, 471)


def test_wrong_settings_are_told_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        Schedule("cosin", 10, 1.0, decay=0.0)
    assert len(caught.value.problems) == 3 and "cosine" in caught.value.problems[0]
    with pytest.raises(ValueError, match="cannot end"):
        Schedule("linear", 10, 0.1).replan(5, 5)


@pytest.mark.parametrize(
    ("seconds", "fitting"),
    [
        (102.0, None),  # forecast 1020 s: 2 % over
        (98.0, None),
        (125.0, 800),  # 1.25 s a step: 800 steps in 1000 s
        (80.0, 1250),
        (2000.0, 101),  # the time is over: one last step
    ],
)
def test_steps_that_fit_by_hand(seconds: float, fitting: int | None) -> None:
    assert steps_that_fit(100, 1000, seconds, 1000.0) == fitting


def test_steps_that_fit_has_a_ceiling_and_no_pace_without_steps() -> None:
    assert steps_that_fit(100, 1000, 10.0, 1000.0, most=1500) == 1500
    assert steps_that_fit(100, 1500, 10.0, 1000.0, most=1500) is None
    assert steps_that_fit(0, 1000, 5.0, 1000.0) is None
    assert steps_that_fit(20, 1000, 5.0, 1000.0, since=(20, 5.0)) is None


def test_a_slow_start_is_counted_as_spent_and_not_as_pace() -> None:
    assert (
        steps_that_fit(40, 1000, 64.0, 160.0, since=(20, 62.0)) is None
    )  # 60 s once, then 0.1 s a step: ends at 160 s
    assert steps_that_fit(40, 1000, 64.0, 100.0, since=(20, 62.0)) == 400
    assert (
        steps_that_fit(40, 1000, 64.0, 160.0) == 100
    )  # without the mark the schedule would be cut to a tenth


def test_replanning_while_training_ends_on_time_whatever_the_pace_was() -> None:
    schedule, seconds, step, mark = Schedule("linear", 1000, 0.1), 0.0, 0, (0, 0.0)
    while step < schedule.steps:
        seconds += 30.0 if step == 0 else 0.2 if step < 300 else 0.08  # planned: 0.1 s a step
        step += 1
        if step == 20:
            mark = (step, seconds)
        if step > 20 and step % 20 == 0 and step < schedule.steps:
            new = steps_that_fit(step, schedule.steps, seconds, 100.0, since=mark)
            if new is not None:
                schedule.replan(step, new)
    assert 95 <= seconds <= 105
