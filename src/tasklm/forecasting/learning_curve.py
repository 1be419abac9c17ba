"""The learning curve of the linear model: its scores on unseen examples, at several sizes of train.

All its settings were chosen on dev for the largest size. Every fold holds out a part of train;
models of nested samples of the rest are scored there and on dev. The last point, on dev, is the
model of all examples.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.words import count_words
from tasklm.errors import DataError
from tasklm.forecasting.power_law import PowerLaw, fit_power_law
from tasklm.forecasting.samples import FEWEST, folds_of
from tasklm.tasks.base import Floats, Label, Metric, Task
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.baselines.wide import Wide, outputs_of
from tasklm.tasks.baselines.wide_fitting import FittedWide
from tasklm.tasks.examples import Example

FITTING = 0.6  # of the seconds, for choosing the settings
WORDS_PER_SECOND = 100_000  # times outputs, that this fits on one core
TRAIN, DEV = 0, 1  # curves
Examples = Sequence[Example]


@dataclass(frozen=True)
class Point:
    """What models of one size predict: statistics of a metric by fold, on train and on dev."""

    size: float  # examples, the mean over folds
    train: list[Floats]  # of each fold: (held examples, numbers)
    dev: list[Floats]  # of each fold: (examples of dev, numbers)


@dataclass(frozen=True)
class Curve:
    """The points of a learning curve."""

    metric: Metric
    examples: int  # of train, as given
    read: int  # of these, that were fitted
    points: list[Point]
    whole: Floats  # statistics on dev of the model of all examples read
    seconds: float

    @property
    def folds(self) -> int:
        """The number of held-out parts that fitted into the given seconds."""
        return len(self.points[0].train)

    def replicates(self, count: int, seed: int = 0) -> Floats:
        """Scores on resampled folds and examples, (1 + count, points), the measured ones first.

        Points are in the order of `sizes`.
        """
        folds, dev = self.folds, len(self.whole)
        held = [len(part) for part in self.points[0].train]
        generator = np.random.default_rng(seed)
        rows = []
        for number in range(count + 1):
            if number:
                weights = [_drawn(size, generator) for size in held]
                on_dev, times = _drawn(dev, generator), _drawn(folds, generator)
            else:
                weights = [np.ones(size) for size in held]
                on_dev, times = np.ones(dev), np.ones(folds)
            rows.append(self._scores(weights, on_dev, times))
        return np.array(rows)

    def _scores(self, weights: Sequence[Floats], on_dev: Floats, times: Floats) -> list[float]:
        """The scores of all points with these weights of examples and folds."""
        scores = []
        for point in self.points:
            folds = zip(times, weights, point.train, strict=True)
            sums = [often * (own @ part) for often, own, part in folds]
            scores.append(float(self.metric.value(np.sum(sums, axis=0))))
        for point in self.points:
            each = [float(self.metric.value(on_dev @ part)) for part in point.dev]
            scores.append(float(np.average(each, weights=times)))
        return [*scores, float(self.metric.value(on_dev @ self.whole))]

    @property
    def sizes(self) -> Floats:
        """Sizes of the points as shares of all examples: on train, on dev, and the last one."""
        sizes = [point.size / self.examples for point in self.points]
        return np.array([*sizes, *sizes, self.read / self.examples])

    @property
    def curves(self) -> NDArray[np.int64]:
        """The curve of each point: TRAIN or DEV."""
        return np.repeat([TRAIN, DEV], [len(self.points), len(self.points) + 1])

    def power_law(self, replicates: Floats) -> PowerLaw:
        """The power laws of replicates."""
        return fit_power_law(self.sizes, self.curves, replicates)


def _drawn(count: int, generator: np.random.Generator) -> Floats:
    """The counts of draws with replacement."""
    return generator.multinomial(count, np.full(count, 1 / count)).astype(np.float64)


def measure_curve(task: Task, train: Examples, dev: Examples, metric: str, seconds: float) -> Curve:
    """The learning curve within some seconds; two folds are fitted in any case."""
    started = time.monotonic()
    some = with_all_classes(train, examples_in(task, train, FITTING * seconds))
    fitted = _fitted(task, some, dev, metric)
    refit = fitted.refit
    assert refit is not None and isinstance(fitted.wide, Wide)
    own = [some[place] for place in refit.places]
    units, predictions = fitted.wide.units_with(task, dev, fitted.wide.outputs(dev))
    judge = _Judge(task.tuned(dev, units, predictions), metric, fitted.wide)
    rounds: list[_Round] = []
    longest = 0.0
    for number, fold in enumerate(folds_of(own, dev)):
        begun = time.monotonic()
        if number >= 2 and begun - started + longest > seconds:
            break
        held = [own[place] for place in fold.held]
        models = [refit.fit(sample) for sample in fold.samples]
        on_train = [judge.labels(held, refit.decisions(model, fold.held)) for model in models]
        on_dev = [judge.labels(dev, judge.decisions(model, dev)) for model in models]
        rounds.append(_Round([len(sample) for sample in fold.samples], held, on_train, on_dev))
        longest = max(longest, time.monotonic() - begun)
    if len(rounds) < 2:
        raise DataError(
            "too many training examples share texts: none can be held out for a forecast",
            remedy="Train directly: tasklm fit reports the score of a linear model within seconds.",
        )
    points = [_point(judge, rounds, dev, size) for size in range(len(rounds[0].sizes))]
    whole = judge.statistics(dev, judge.labels(dev, fitted.wide.decisions(dev)))
    spent = time.monotonic() - started
    return Curve(judge.task.metric(metric), len(train), len(own), points, whole, spent)


@dataclass(frozen=True)
class _Round:
    """What the models of one fold predict, by the size of their samples."""

    sizes: list[int]
    held: list[Example]
    on_train: list[list[Label]]
    on_dev: list[list[Label]]


def _point(judge: _Judge, rounds: Sequence[_Round], dev: Sequence[Example], size: int) -> Point:
    """The point of one size.

    Predictions of all folds are scored together: a correlation within one fold would miss
    differences between folds.
    """
    held = list(chain.from_iterable(each.held for each in rounds))
    labels = list(chain.from_iterable(each.on_train[size] for each in rounds))
    ends = np.cumsum([len(each.held) for each in rounds])[:-1]
    on_train = np.split(judge.statistics(held, labels), ends)
    on_dev = [judge.statistics(dev, each.on_dev[size]) for each in rounds]
    return Point(float(np.mean([each.sizes[size] for each in rounds])), on_train, on_dev)


def with_all_classes(train: Sequence[Example], count: int) -> list[Example]:
    """So many examples, evenly spread, and the first of each class that none of them has: models
    of fewer classes would give other outputs than the task's.
    """
    places = evenly(range(len(train)), count)
    classes = {train[place].label for place in places if isinstance(train[place].label, str)}
    for place, example in enumerate(train):
        if isinstance(example.label, str) and example.label not in classes:
            classes.add(example.label)
            places.append(place)
    return [train[place] for place in sorted(places)]


def examples_in(task: Task, train: Sequence[Example], seconds: float) -> int:
    """The number of examples that can be fitted, including the choice of settings, in some seconds.

    It depends on their numbers of words and labels, not on the clock. The number of folds does
    depend on the clock, so forecasts on a busy machine differ slightly.
    """
    outputs = task.together * (len(task.labels) if len(task.labels) > 2 else 1)
    words = outputs * sum(count_words(example.text) for example in train)
    share = seconds * WORDS_PER_SECOND / max(1, words)
    return min(len(train), max(FEWEST, int(share * len(train))))


def _fitted(task: Task, train: Examples, dev: Examples, metric: str) -> FittedWide:
    fitted: FittedWide | None = task.fit_wide(train, dev, metric)
    if fitted is None:
        why = f"a task of kind {task.kind} has no linear model with these settings, or no words"
        raise DataError(
            f"this task cannot be forecast: {why}",
            remedy="Train for some minutes and see: tasklm fit TRAIN --corpus … --minutes 5",
        )
    return fitted


@dataclass(frozen=True)
class _Judge:
    """Scores the decisions of linear models in the same way as those of the full model."""

    task: Task
    metric: str
    wide: Wide

    def decisions(self, model: Any, examples: Sequence[Example]) -> Floats:
        """The decisions of another model on the same features."""
        return dataclasses.replace(self.wide, linear=model).decisions(examples)

    def labels(self, examples: Sequence[Example], decisions: Floats) -> list[Label]:
        """The labels for decisions."""
        outputs = outputs_of(self.wide.form, decisions, self.wide.scale, self.wide.offset)
        units, predictions = self.wide.units_with(self.task, examples, outputs)
        return [
            self.task.label_of(answer) for answer in self.task.answers(examples, units, predictions)
        ]

    def statistics(self, examples: Sequence[Example], labels: Sequence[Label]) -> Floats:
        """The contribution of each example to the metric's sums, (examples, numbers)."""
        gold = [example.label for example in examples]
        return np.asarray(self.task.metric(self.metric).statistics(gold, labels), np.float64)
