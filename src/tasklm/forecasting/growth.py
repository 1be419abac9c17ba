"""What more labels would bring: the learning curve of a run's linear model, and where it leads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasklm.errors import DataError
from tasklm.evaluate.scores import metric_name
from tasklm.forecasting.forecast import CONFIDENCE, REPLICATES, extrapolated
from tasklm.forecasting.learning_curve import DEV, Curve, measure_curve
from tasklm.tasks.base import Floats, Task
from tasklm.tasks.examples import Splits

MORE = 100  # labels, beside twice as many
STEPS = 40  # points of the drawn curve


@dataclass(frozen=True)
class Gain:
    """What further labels would add, in points, with an interval."""

    labels: int  # all told
    gain: float
    low: float
    high: float

    @classmethod
    def of(cls, labels: int, gain: float, errors: Floats) -> Gain:
        """From a gain and its equally likely errors, all as shares of 1."""
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(gain + errors, [tail, 1 - tail])
        return cls(labels, *(round(100 * float(value), 2) for value in (gain, low, high)))

    def __str__(self) -> str:
        return f"{self.gain:+.1f} ± {(self.high - self.low) / 2:.1f}"


@dataclass(frozen=True)
class Growth:
    """The learning curve of a linear model on dev, and what more labels would add to its score."""

    metric: str
    examples: int  # of train
    measured: tuple[tuple[float, float], ...]  # labels and score on dev, in points
    fitted: tuple[tuple[float, float], ...]  # the power law, up to twice the labels
    more: Gain
    twice: Gain

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Growth:
        """What `to_dict` gave."""
        measured, fitted = (
            tuple((float(labels), float(score)) for labels, score in values[name])
            for name in ("measured", "fitted")
        )
        more, twice = (Gain(**values[name]) for name in ("more", "twice"))
        return cls(str(values["metric"]), int(values["examples"]), measured, fitted, more, twice)

    def sentence(self) -> str:
        """The forecast in one line."""
        covered = f"{CONFIDENCE:.0%}".replace("%", " %")
        return (
            f"{MORE} more labels: {self.more}; twice the labels ({self.twice.labels:,}): "
            f"{self.twice} points of {metric_name(self.metric)} "
            f"(the linear model of words, random labels, {covered} intervals)"
        )


def growth_of(task: Task, splits: Splits, metric: str, seconds: float) -> Growth:
    """What more labels would add, fitted in about so many seconds; raises DataError for a task
    whose learning curve cannot be measured.
    """
    if len(splits.dev) < 2:
        raise DataError("there is no dev to score it on", remedy="Give a dev file with --dev.")
    return grown(measure_curve(task, splits.train, splits.dev, metric, seconds), metric)


def grown(curve: Curve, metric: str, seed: int = 0) -> Growth:
    """Where a learning curve leads."""
    replicates = curve.replicates(REPLICATES, seed)
    law = curve.power_law(replicates)
    generator = np.random.default_rng((seed, 2))
    count, more = curve.examples, curve.examples + MORE
    gains = [
        Gain.of(labels, *extrapolated(law, labels / count, generator))
        for labels in (more, 2 * count)
    ]
    on_dev = curve.curves == DEV
    measured = zip(curve.sizes[on_dev], replicates[0][on_dev], strict=True)
    sizes = np.linspace(float(curve.sizes.min()), 2.0, STEPS)
    fitted = [(size, float(law.at(size)[0, DEV])) for size in sizes.tolist()]
    return Growth(metric, count, _points(measured, count), _points(fitted, count), *gains)


def _points(shares: Any, count: int) -> tuple[tuple[float, float], ...]:
    """Shares of the labels and scores, as labels and points."""
    return tuple(
        (round(float(size) * count, 1), round(100 * float(score), 2)) for size, score in shares
    )
