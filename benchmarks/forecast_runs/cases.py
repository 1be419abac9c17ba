"""One case of forecast.py: what was forecast, what came out, and how far apart these are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laptop_runs.data import METRICS, read_task
from tasklm.forecasting.forecast import Expected, Forecast, chance_errors, forecast_splits
from tasklm.forecasting.gains import RECORDED, Gains
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.baselines.wide import labels_by
from tasklm.tasks.examples import Splits

NEAR = 1.5  # points
Scores = dict[str, float]
SHARES = ("linear", "trained", "gain", "twice", "gpu gain")


@dataclass(frozen=True)
class Case:
    """A forecast in points, its interval and what came out."""

    task: str
    what: str  # one of SHARES
    forecast: float
    low: float
    high: float
    actual: float
    tested: int = 0  # test examples that the actual score is of
    possible: float | None = None  # chance that the true score is within 1.5 points

    @property
    def near(self) -> bool:
        """Whether both are within 1.5 points."""
        return abs(self.forecast - self.actual) <= NEAR

    @property
    def covered(self) -> bool:
        """Whether the interval holds what came out."""
        return self.low <= self.actual <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)


def case_of(
    task: str,
    what: str,
    expected: Expected,
    actual: float,
    tested: int = 0,
    possible: float | None = None,
) -> Case:
    """The case of an expected score."""
    values = (expected.score, expected.low, expected.high, round(actual, 2))
    return Case(task, what, *values, tested, possible)


def task_cases(folder: Path, gains: Gains, recorded: Scores, seconds: float) -> list[Case]:
    """All cases of a prepared task; `recorded` has its score after training, where there is one.

    The forecast has no gains of this very task, and no labels of test.
    """
    data, splits = read_task(folder)
    task = TASKS.get(data.kind).from_examples(splits.train, Kind())
    metric, others = METRICS[folder.name], gains.without(folder.name)
    whole = forecast_splits(task, _hidden(splits), metric, seconds, gains=others)
    half = Splits(splits.train[::2], splits.dev, splits.test)
    from_half = forecast_splits(task, _hidden(half), metric, seconds, gains=others)
    linear, possible = linear_score(task, splits, metric)
    expected = {"linear": (whole.linear, linear), "twice": (from_half.linear_twice, linear)}
    if recorded:
        expected["trained"] = trained_of(whole), recorded["test"]
    cases = []
    for what, (of, actual) in expected.items():
        cases.append(case_of(folder.name, what, of, actual, len(splits.test), possible))
    return cases


def trained_of(forecast: Forecast) -> Expected:
    """What is expected of the budget of a CPU that is recorded."""
    budgets = {(row.machine, row.minutes): row.labels for row in forecast.trained}
    return budgets["cpu", RECORDED["cpu"]]


def _hidden(splits: Splits) -> Splits:
    """The splits without the labels of test."""
    blank = [dataclasses.replace(example, label=None) for example in splits.test]
    return Splits(splits.train, splits.dev, blank)


def linear_score(task: Task, splits: Splits, metric: str) -> tuple[float, float]:
    """The linear model's score on test, in points, and the chance that its true score is near."""
    wide = task.fit_wide(splits.train, splits.dev, metric).wide
    labels = labels_by(wide, task, {"dev": splits.dev, "test": splits.test})["test"]
    judge = task.metric(metric)
    statistics = judge.statistics([example.label for example in splits.test], labels)
    errors = chance_errors(judge, statistics, len(statistics), 1000, np.random.default_rng(0))
    near = float((np.abs(100 * errors) <= NEAR).mean())
    return 100 * float(judge.value(statistics.sum(0))), round(near, 3)


def gain_cases(gains: Gains, machine: str, what: str) -> list[Case]:
    """Each recorded gain of a machine beside that which is forecast without its task."""
    cases = []
    for run in gains.runs[machine]:
        gain = gains.without(run.task).expected(machine, RECORDED[machine], run.form)
        cases.append(case_of(run.task, what, Expected.of(gain.points, gain.errors), run.gain))
    return cases


@dataclass(frozen=True)
class Counts:
    """How many cases of a sort there are, and how many of them are near or covered."""

    cases: int
    near: int
    covered: int
    possible: float | None  # that would be near, on average, if true scores were forecast


def counts(cases: Sequence[Case], what: str) -> Counts:
    """The counts of one sort of cases."""
    own = [case for case in cases if case.what == what]
    chances = [case.possible for case in own if case.possible is not None]
    possible = sum(chances) if own and len(chances) == len(own) else None
    near, covered = sum(case.near for case in own), sum(case.covered for case in own)
    return Counts(len(own), near, covered, possible)
