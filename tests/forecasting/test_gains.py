"""Gains of recorded runs: medians by hand, trends, a task that is left out, and forms of texts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasklm.forecasting.gains import MACHINES, MINUTES, Gains, Recorded, form_of, recorded_gains
from tasklm.tasks.examples import Example

CPU = (
    Recorded("a", "sentences", 2.0, 0.0),
    Recorded("b", "sentences", 4.0, 1.0),
    Recorded("c", "sentences", 3.0, 0.0),
    Recorded("d", "documents", 0.0, 0.0),
    Recorded("e", "pairs", -1.0, 0.0),
)
GPU = (Recorded("a", "sentences", 20.0), Recorded("d", "documents", 4.0))
GAINS = Gains({"cpu": CPU, "gpu": GPU}, {"cpu": "cores", "gpu": "a GPU"}, {"a": 0.5}, 2.0)


def test_a_form_has_the_median_of_its_tasks_and_twice_that_of_all() -> None:
    assert GAINS.expected("cpu", 5, "sentences").points == 2.0  # of 2, 4, 3, 2, 2
    assert GAINS.expected("cpu", 5, "documents").points == 2.0  # of 0, 2, 2
    assert GAINS.expected("cpu", 5, "options").points == 2.0
    errors = GAINS.expected("cpu", 5, "sentences").errors
    np.testing.assert_allclose(errors, [0.0, 2.0, 1.0, -2.0, -3.0])


def test_longer_budgets_of_a_cpu_follow_the_trend_and_do_not_overtake_a_gpu() -> None:
    # trends are 1, 1.5, 1.5, 0, -0.5 points a doubling, their median 1: for sentences of 1, 1.5,
    # 1.5, 1, 1
    assert GAINS.expected("cpu", 20, "sentences").points == pytest.approx(2.0 + math.log2(4))
    on_gpu = GAINS.expected("gpu", 5, "sentences").points
    assert GAINS.expected("cpu", 5 * 2**20, "sentences").points == on_gpu
    assert GAINS.expected("cpu", 1, "sentences").points == 0.0  # a trend back is no loss
    assert np.ptp(GAINS.expected("cpu", 20, "sentences").errors) > np.ptp(
        GAINS.expected("cpu", 5, "sentences").errors
    )


def test_gains_of_a_gpu_grow_with_a_power_of_the_minutes() -> None:
    at = {minutes: GAINS.expected("gpu", minutes, "sentences").points for minutes in MINUTES}
    assert at[20] == 12.0  # the median of 20, 12, 12
    assert at[5] == pytest.approx(6.0) and at[60] == pytest.approx(12 * math.sqrt(3))


def test_a_task_that_is_left_out_tells_nothing() -> None:
    others = GAINS.without("b")
    assert [run.task for run in others.runs["cpu"]] == ["a", "c", "d", "e"]
    assert GAINS.without("a").powers == GAINS.powers  # the only one stays


def test_recorded_gains_are_whole() -> None:
    gains = recorded_gains()
    for machine in MACHINES:
        assert len(gains.runs[machine]) >= 9 and gains.names[machine]
        for minutes in MINUTES:
            gain = gains.expected(machine, minutes, "sentences")
            assert math.isfinite(gain.points) and np.isfinite(gain.errors).all()
        points = [gains.expected(machine, minutes, "sentences").points for minutes in MINUTES]
        assert points == sorted(points)


@pytest.mark.parametrize(
    ("example", "form"),
    [
        (Example(("a b",), ["O", "O"], words=("a", "b")), "words"),
        (Example(("text", "one", "other"), 0, options=("one", "other")), "options"),
        (Example(("one", "other"), "a"), "pairs"),
        (Example(("word " * 200,), "a"), "documents"),
        (Example(("a short text",), "a"), "sentences"),
    ],
)
def test_forms_of_texts(example: Example, form: str) -> None:
    assert form_of([example] * 3) == form
