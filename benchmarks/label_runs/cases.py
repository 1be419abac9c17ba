"""One draw of a task: labels to start with, a pool, and what further labels from it are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasklm.forecasting.growth import growth_of
from tasklm.labelling.choosing import choose, without_near_copies
from tasklm.labelling.doubts import Doubt
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, Answer, Task, score
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.examples import Example, Splits

START, MORE, POOL = 200, 200, 5000  # labels, further labels, texts to choose them from
DEV = 300  # examples by which the linear model's settings are chosen
WHOLE, CURVE_DEV, SECONDS = 4000, 1000, 10.0  # of a forecast: labels, dev, time
TIMES = 3  # random choices that each choice is compared with


@dataclass(frozen=True)
class Case:
    """Scores on test, × 100: with the first labels, with chosen ones and with random ones."""

    task: str
    draw: int
    pool: int
    before: float
    chosen: float
    random: list[float]

    @property
    def gain(self) -> float:
        """What choosing adds to the mean of random choices."""
        return self.chosen - float(np.mean(self.random))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Doubling:
    """What twice the labels were forecast to add to the linear model's score, and what they
    added on test, in points.
    """

    task: str
    labels: int  # that the forecast knows
    gain: float
    low: float
    high: float
    outcome: float

    @property
    def inside(self) -> bool:
        """Whether the outcome lies within the interval."""
        return self.low <= self.outcome <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def doubling_of(name: str, kind: str, splits: Splits, metric: str) -> Doubling:
    """Forecasts from every other one of the labels what all of them bring."""
    whole = TASKS.get(kind).from_examples(splits.train, Kind())
    train, dev = evenly(splits.train, WHOLE), evenly(splits.dev, CURVE_DEV)
    half = train[::2]
    growth = growth_of(whole, Splits(half, dev), metric, SECONDS)
    judge = _Judge(whole, dev, splits.test, metric)
    outcome = judge.score(train) - judge.score(half)
    twice = growth.twice
    return Doubling(name, len(half), twice.gain, twice.low, twice.high, round(outcome, 3))


def case_of(name: str, kind: str, splits: Splits, metric: str, draw: int) -> Case:
    """One draw of a task."""
    whole = TASKS.get(kind).from_examples(splits.train, Kind())
    judge = _Judge(whole, evenly(splits.dev, DEV), splits.test, metric)
    order = np.random.default_rng(draw).permutation(len(splits.train)).tolist()
    shuffled = [splits.train[place] for place in order]
    start, pool = shuffled[:START], shuffled[START : START + POOL]
    model = judge.fitted(start)
    candidates = without_near_copies(pool, start)
    answers = model.answers(candidates)
    doubts = [Doubt(model.task.rivals(answer)) for answer in answers]
    chosen = [one.example for one in choose(candidates, doubts, start, MORE)]
    random = []
    for time in range(TIMES):
        places = np.random.default_rng((draw, time)).permutation(len(pool))[:MORE].tolist()
        random.append(judge.score([*start, *(pool[place] for place in places)]))
    best = judge.score([*start, *chosen])
    return Case(name, draw, len(pool), judge.of(model), best, random)


@dataclass(frozen=True)
class _Fitted:
    """A linear model of some labels."""

    task: Task
    wide: Any

    def answers(self, examples: Sequence[Example]) -> list[Answer]:
        """Its answers."""
        units, values = self.wide.units_with(self.task, examples, self.wide.outputs(examples))
        return self.task.answers(examples, units, values)


@dataclass(frozen=True)
class _Judge:
    """Fits linear models and scores them on test."""

    whole: Task  # with the labels of all of train
    dev: Sequence[Example]
    test: Sequence[Example]
    metric: str

    def fitted(self, train: Sequence[Example]) -> _Fitted:
        """The model of some labels, whose settings dev chooses."""
        task = TASKS.get(self.whole.kind).from_examples(train, Kind())
        dev = [example for example in self.dev if example.label in task.labels]
        return _Fitted(task, task.fit_wide(train, dev, self.metric).wide)

    def of(self, model: _Fitted) -> float:
        """The score of a model on test, × 100."""
        labels = [model.task.label_of(answer) for answer in model.answers(self.test)]
        gold = [example.label for example in self.test]
        return round(100 * score(self.whole.metric(self.metric), gold, labels), 3)

    def score(self, train: Sequence[Example]) -> float:
        """The score on test of the model of some labels."""
        return self.of(self.fitted(train))
