"""The scores of an ensemble, of its students and of models without teachers, with intervals."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.evaluate.intervals import (
    Predicted,
    bootstrap_interval,
    paired_difference,
    per_seed,
    statistics_of,
)
from tasklm.evaluate.scores import metric_name
from tasklm.run_folder import recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS, Floats, Label, Metric, Task
from tasklm.tasks.readers.splits import read_splits

RESAMPLES = 1000
MOST_WITHOUT = 0.05  # share of the resamples in which the ensemble gains nothing: beyond it, the
# share of its gain that a student keeps is not known


@dataclass(frozen=True)
class Interval:
    """A number and the interval of 95 % of its resamples; points, or a share of 1."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """The scores of a task in points: means over seeds."""

    task: str
    metric: str
    split: str  # that is scored: test, or dev where there is no test set
    examples: int  # of it
    single: Interval  # one seed
    ensemble: Interval  # all of them together
    student: Interval  # of their size
    gain: Interval  # of the ensemble over one seed
    students_gain: Interval  # of the student over one seed
    share: Interval | None  # of the ensemble's gain that the student has; None: not known
    shape: str  # of the teachers
    small_shape: str
    small_alone: Interval
    small_taught: Interval
    small_gain: Interval
    p: float  # of the difference between the two small ones

    def to_dict(self) -> dict[str, Any]:
        """The scores as plain values."""
        return dataclasses.asdict(self)


def result_of(name: str, folder: Path) -> Result:
    """What the finished runs of a task say."""
    teacher, small = folder / "teacher", folder / "small"
    scores = read_json(teacher / "scores.json")
    split = "test" if (teacher / "predictions" / "test-1.json").is_file() else "dev"
    task: Task = TASKS.get(_task(teacher)["kind"]).from_dict(_task(teacher))
    gold = [one.label for one in read_splits(recipe_of(teacher).data).named()[split]]

    def statistics(predictions: Path) -> Floats:
        return statistics_of(
            task.metric(scores["metric"]),
            Predicted(gold, _labels(task, predictions, split)),
        )

    metric = task.metric(scores["metric"])
    single, ensemble = statistics(teacher / "predictions"), statistics(_together(teacher))
    student = statistics(folder / "student" / "predictions")
    taught = statistics(small / "predictions")
    alone = statistics(small / "compare" / "no-teacher" / "predictions")
    small_gain = paired_difference(metric, taught, alone)
    return Result(
        name,
        metric_name(scores["metric"]),
        split,
        len(gold),
        *(_points(metric, one) for one in (single, ensemble, student)),
        gain=_difference(metric, ensemble, single),
        students_gain=_difference(metric, student, single),
        share=kept_share(metric, single, ensemble, student),
        shape=_shape(teacher),
        small_shape=_shape(small),
        small_alone=_points(metric, alone),
        small_taught=_points(metric, taught),
        small_gain=_difference(metric, taught, alone),
        p=small_gain.p,
    )


def _task(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = read_json(run / "predictions" / "task-1.json")
    return values


def _together(run: Path) -> Path:
    """The predictions of all seeds together."""
    return run / "ensemble-predictions"


def _labels(task: Task, folder: Path, split: str) -> list[list[Label]]:
    """The labels that each seed predicts."""
    count = len(list(folder.glob(f"{split}-*.json")))
    answers = [read_json(folder / f"{split}-{number}.json") for number in range(1, count + 1)]
    return [[task.label_of(answer) for answer in seed] for seed in answers]


def _shape(run: Path) -> str:
    shape = read_json(run / "stage1" / "config.json")["shape"]
    return f"{shape['layers']} × {shape['width']}"


def _points(metric: Metric, statistics: Floats) -> Interval:
    low, high = bootstrap_interval(metric, statistics)
    return Interval(100 * float(per_seed(metric, statistics).mean()), 100 * low, 100 * high)


def _difference(metric: Metric, ours: Floats, other: Floats) -> Interval:
    one = paired_difference(metric, ours, other)
    return Interval(100 * one.difference, 100 * one.low, 100 * one.high)


def kept_share(
    metric: Metric, single: Floats, ensemble: Floats, student: Floats
) -> Interval | None:
    """(student − one seed) / (ensemble − one seed), over resamples of examples and seeds.

    None where it is not known: the ensemble gains nothing, or not in enough of the resamples.
    """
    draw = np.random.default_rng(0)
    everything = [np.arange(one.shape[1]) for one in (single, ensemble, student)]
    examples = single.shape[2]
    whole = _gains(metric, (single, ensemble, student), everything, np.arange(examples))
    shares = []
    for _ in range(RESAMPLES):
        seeds = [draw.choice(own, len(own)) for own in everything]
        rows = draw.integers(examples, size=examples)
        gain, students_gain = _gains(metric, (single, ensemble, student), seeds, rows)
        if gain > 0:
            shares.append(students_gain / gain)
    if whole[0] <= 0 or len(shares) < (1 - MOST_WITHOUT) * RESAMPLES:
        return None
    low, high = np.percentile(shares, [2.5, 97.5])
    return Interval(whole[1] / whole[0], float(low), float(high))


def _gains(
    metric: Metric, models: tuple[Floats, ...], seeds: list[np.ndarray], rows: np.ndarray
) -> tuple[float, float]:
    """What ensemble and student have over one seed, on some examples with some seeds."""
    single, ensemble, student = (
        float(metric.value(one[0, own][:, rows].sum(1)).mean())
        for one, own in zip(models, seeds, strict=True)
    )
    return ensemble - single, student - single
