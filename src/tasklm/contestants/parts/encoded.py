"""Examples as their task reads them, with the outputs of any model at their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasklm.tasks.base import Label, Task, Tokeniser, Unit, score
from tasklm.tasks.examples import Example

Outputs = NDArray[np.float32]  # (places, outputs of each)


@dataclass(frozen=True)
class Encoded:
    """Examples and their units; a place is what has outputs: a text, an option, or a word."""

    examples: Sequence[Example]
    units: list[Unit]

    @classmethod
    def of(
        cls, task: Task, examples: Sequence[Example], tokeniser: Tokeniser, length: int
    ) -> Encoded:
        """Examples in rows of at most `length` tokens."""
        return cls(examples, task.encode(examples, tokeniser, length))

    def targets(self) -> Tensor:
        """The targets of all places, (places, 1, …): one place in each row."""
        rows: list[NDArray[Any]] = []
        for unit in self.units:
            assert unit.targets is not None
            rows.append(unit.targets)
        return torch.from_numpy(np.concatenate(rows)).unsqueeze(1)

    def kept(self, task: Task, outputs: Outputs) -> list[Any]:
        """What the task keeps of the outputs of all places, for each unit."""
        ends = np.cumsum([len(unit.places) for unit in self.units])[:-1]
        return [task.keep(np.asarray(own, np.float64)) for own in np.split(outputs, ends)]

    def tuned(self, task: Task, outputs: Outputs) -> Task:
        """The task tuned on these examples: its thresholds, if it has some."""
        return task.tuned(self.examples, self.units, self.kept(task, outputs))

    def labels(self, task: Task, outputs: Outputs) -> list[Label]:
        """The labels of all examples."""
        answers = task.answers(self.examples, self.units, self.kept(task, outputs))
        return [task.label_of(answer) for answer in answers]


def tuned_score(task: Task, metric: str, dev: Encoded, outputs: Outputs) -> tuple[float, Task]:
    """The score of outputs on dev by the task tuned there, and that task."""
    own = dev.tuned(task, outputs)
    gold = [example.label for example in dev.examples]
    return score(own.metric(metric), gold, dev.labels(own, outputs)), own


def reads_words(task: Task) -> bool:
    """Whether a task has an answer for each word."""
    return task.elsewhere is not None and task.elsewhere.of_words


def width_of(task: Task) -> int:
    """The number of outputs of a place."""
    outputs: Tensor = task.head(8, 0.0)(torch.zeros(1, 1, 8))
    return int(outputs.shape[-1])


def against_linear(task: Task) -> str:
    """Why answers cannot be read from the outputs of single places; "" if they can."""
    if task.elsewhere is not None:
        return ""
    return f"answers of kind {task.kind} are searched for, not read from a vector of text or word"


def evenly_within(encoded: Encoded, most: int) -> list[int]:
    """Positions of evenly spread examples that have at most `most` places together."""
    places, count = sum(len(unit.places) for unit in encoded.units), len(encoded.examples)
    wanted = max(1, min(count, int(count * most / max(1, places))))
    return [position * count // wanted for position in range(wanted)]
