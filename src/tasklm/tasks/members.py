"""The members of several tasks, and what is theirs among the examples, units and outputs of all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import NONE, Task, Unit
from tasklm.tasks.examples import Example

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Member:
    """One of several tasks, and its columns of the outputs of the head that tasks share.

    One that takes turns with the others has a head of its own, and no such columns.
    """

    name: str
    task: Task
    metric: str
    first: int  # column
    outputs: int  # columns
    places: float = 1.0  # of a training example, on average: the words of a sentence

    @property
    def shares(self) -> bool:
        """Whether its examples share batches with those of other tasks."""
        return self.outputs > 0

    @property
    def columns(self) -> slice:
        """Its columns of the outputs."""
        return slice(self.first, self.first + self.outputs)

    @property
    def weight(self) -> float:
        """What its loss counts beside those of other tasks.

        A score is the sigmoid of its logit, whose slope is a quarter at most: without a weight,
        which other tasks in the batch make matter, a score would be learnt four times as slowly as
        with BAM's plain squared error (arXiv 1907.04829).
        """
        return 4.0 if self.task.kind == "regress" else 1.0

    def own(self, examples: Sequence[Example]) -> list[Example]:
        """Its examples among some, as its task reads them."""
        return [alone(example) for example in examples if example.task == self.name]

    @property
    def numbers(self) -> int:
        """How many numbers a place has as its target."""
        return self.outputs if self.task.kind == "multilabel" else 1

    def targets(self, targets: Tensor, number: int) -> Tensor:
        """Its targets, NONE at the places of other tasks."""
        own = targets[..., 1 : 1 + self.numbers].masked_fill(targets[..., :1] != number, NONE)
        if self.task.kind != "multilabel":
            own = own[..., 0]
        return own if self.task.kind == "regress" else own.round().long()


def alone(example: Example) -> Example:
    """An example as its own task reads it."""
    label = None if example.label is None else example.label[1]
    return dataclasses.replace(example, label=label, task="")


def joined(name: str, examples: Sequence[Example]) -> list[Example]:
    """Examples of a task as those of one of several."""
    return [dataclasses.replace(one, label=(name, one.label), task=name) for one in examples]


def places_of(examples: Sequence[Example], name: str) -> list[int]:
    """Where the examples of a task stand among all."""
    return [place for place, example in enumerate(examples) if example.task == name]


def parts_of(
    member: Member, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
) -> tuple[list[Example], list[Unit], list[Any]]:
    """The examples, units and kept outputs of one task."""
    where = {place: number for number, place in enumerate(places_of(examples, member.name))}
    own, kept_outputs = [], []
    for unit, outputs in zip(units, predictions, strict=True):
        if unit.example in where:
            own.append(dataclasses.replace(unit, example=where[unit.example]))
            if member.shares:
                outputs = member.task.keep(outputs[:, member.columns])
            kept_outputs.append(outputs)
    return member.own(examples), own, kept_outputs


def numbered(targets: NDArray[Any], number: int, numbers: int) -> NDArray[np.float32]:
    """The targets of a unit behind the number of its task, filled up with NONE."""
    rows = targets.reshape(len(targets), -1)
    row = np.full((len(rows), 1 + numbers), NONE, np.float32)
    row[:, 0], row[:, 1 : 1 + rows.shape[1]] = number, rows
    return row
