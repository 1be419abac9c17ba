"""What a kind of task says about text without labels.

The model's own answers to a text (those of the primary module) become soft targets, and others that
see less of the text are to agree with them: the auxiliary modules of cross-view training (arXiv
1809.08370), or the model itself on a text with noise.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn

# the states that auxiliary modules read, (rows, places, width) each
WHOLE = "whole"  # those that the primary module reads
FORWARD, BACKWARD = "forward", "backward"  # what stands up to the end of a word, or from its start
FUTURE, PAST = "future", "past"  # the same of the word before: what comes is unseen, or after
FIRST_HALF, SECOND_HALF = "first half", "second half"  # of a text
USUAL_NORM = 0.5  # of virtual adversarial noise
BETWEEN = ": "  # the name of a task and that of its module, where there are several tasks


def task_and_module(name: str) -> tuple[str, str]:
    """The task that an auxiliary module is of, "" where there is one task, and its name there."""
    task, _, module = name.rpartition(BETWEEN)
    return task, module


class Auxiliary(nn.Module, abc.ABC):
    """A module that answers from a part of the text; it is dropped after training."""

    reads: tuple[str, ...]  # names of the states that it is called with

    @abc.abstractmethod
    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass on states of so many rows and places."""


class Consistency(Protocol):
    """The answers of a task as targets."""

    @property
    def of_words(self) -> bool:
        """Whether a place is a word; otherwise it stands for a whole text."""
        ...

    @property
    def norm(self) -> float:
        """That of virtual adversarial noise, of a whole example."""
        ...

    def holds(self, there: Tensor, columns: Tensor) -> Tensor:
        """Which answers are of a word or text, (rows, answers).

        `there` (rows, places) says where there is a place at all, `columns` its column, counted
        from the start of its text: 0 is the first token, before all words.
        """
        ...

    def targets(self, outputs: Tensor, holds: Tensor) -> Tensor:
        """The soft targets that the outputs of the model's head are; no gradient is taken."""
        ...

    def divergence(self, outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
        """The Kullback-Leibler divergence of outputs of the head from targets, in fp32, summed over
        the answers that hold.
        """
        ...

    def auxiliaries(self, whole: int, view: int, dropout: float) -> Mapping[str, Auxiliary]:
        """Fresh auxiliary modules by their names, for states of these widths; raises RecipeError,
        with the reason, where the task has none.
        """
        ...

    def auxiliary_divergence(
        self, name: str, outputs: Tensor, targets: Tensor, holds: Tensor
    ) -> Tensor:
        """The divergence of the outputs of the named auxiliary module."""
        ...
