"""What the peers of a task predict, one of its classes or a number, and how that is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional

from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, score
from tasklm.tasks.examples import Example, Splits

KINDS = ("classify", "regress")  # those that the peers can do


@dataclass(frozen=True)
class Chosen:
    """The scores of the setting that is best on dev, and its name."""

    dev: float
    test: float
    setting: str


class Goal:
    """The classes of a task, or the mean and spread of its numbers."""

    def __init__(self, kind: str, splits: Splits, metric: str) -> None:
        self.metric = TASKS.get(kind).from_examples(splits.train, Kind()).metric(metric)
        labels = [example.label for example in splits.train]
        self.classes = sorted(set(labels)) if kind == "classify" else []
        self._mean = 0.0 if self.classes else float(np.mean(labels))
        self._sd = 1.0 if self.classes else float(np.std(labels)) or 1.0

    @property
    def outputs(self) -> int:
        """How many numbers are predicted for an example."""
        return len(self.classes) or 1

    def targets(self, examples: Sequence[Example]) -> np.ndarray:
        """The numbers of the classes, or the scaled numbers of the task."""
        if self.classes:
            numbers = {label: number for number, label in enumerate(self.classes)}
            return np.array([numbers[example.label] for example in examples])
        return (np.array([example.label for example in examples]) - self._mean) / self._sd

    def score(self, outputs: np.ndarray, examples: Sequence[Example]) -> float:
        """The metric of predictions of shape (examples, outputs)."""
        predicted: list[Any] = (self._mean + self._sd * outputs[:, 0]).tolist()
        if self.classes:
            predicted = [self.classes[number] for number in outputs.argmax(1)]
        return score(self.metric, [example.label for example in examples], predicted)


def better(one: Chosen | None, other: Chosen) -> Chosen:
    """The one with the better dev; the first where they are equal."""
    return other if one is None or other.dev > one.dev else one


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of what a goal's targets are: classes or numbers."""
    if targets.is_floating_point():
        return functional.mse_loss(outputs[:, 0], targets.float())
    return functional.cross_entropy(outputs, targets)
