"""What a kind of task must offer, so that selection, training, scoring and serving work for all kinds unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from tasklm.registry import Registry
from tasklm.tasks.examples import Example


class Task(Protocol):
    """A task's labels, head, loss, decoding and metrics."""

    kind: str
    labels: list[str]

    @classmethod
    def from_examples(cls, train: Sequence[Example]) -> Task:
        """Returns the task whose labels are those of the training examples."""
        ...

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Task:
        """Returns the task that `to_dict` described."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Returns all that a saved model must know about the task."""
        ...

    def targets(self, examples: Sequence[Example]) -> Tensor:
        """Returns the targets of labelled examples, one row each."""
        ...

    def head(self, width: int, dropout: float) -> nn.Module:
        """Returns a fresh head: hidden states → outputs.

        Where `head.reads_firsts`, the states are those of the examples' first tokens, (examples, width), in the order of the
        targets; else of all tokens, (rows, length, width).
        """
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the loss summed over the examples; places of packed rows that hold no example have the target −100."""
        ...

    def decode(self, outputs: Tensor) -> np.ndarray:
        """Returns predictions in the same form as `targets`."""
        ...

    def answers(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Returns what a person wants to see for each example: the label and the probabilities, say."""
        ...

    def score(self, metric: str, gold: np.ndarray, predicted: np.ndarray) -> float:
        """Returns the named metric."""
        ...


TASKS: Registry[type[Task]] = Registry("kind of task", "tasklm.tasks")
