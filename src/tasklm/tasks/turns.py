"""Tasks that take turns: a batch is of those that share a head, or of one that has its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Task, Tokeniser, Unit
from tasklm.tasks.examples import Example
from tasklm.tasks.members import alone


@dataclass(frozen=True)
class Turn:
    """The tasks of one turn."""

    names: tuple[str, ...]
    task: Task  # those that share a head as one, or a task by itself
    outputs: int  # of an answer, as teachers give it
    mixed: bool  # whether it is the turn of those that share a head

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """The units of its own among the examples of all."""
        where = [place for place, example in enumerate(examples) if example.task in self.names]
        own = [examples[place] for place in where]
        if not self.mixed:
            own = [alone(example) for example in own]
        units = self.task.encode(own, tokeniser, length)
        for unit in units:
            unit.example = where[unit.example]
        return units

    def answers(self, unit: Unit) -> int:
        """How many answers a unit has: one for each place, or one where marks are read too."""
        return 1 if getattr(self.task, "marks", ()) else len(unit.places)


def share_taught(
    turns: Sequence[tuple[Turn, Sequence[Unit]]], examples: int, taught: NDArray[np.float32]
) -> None:
    """Gives each unit what teachers say of it: answers are in the order of the examples."""
    counts = np.zeros(examples + 1, np.int64)
    for turn, units in turns:
        for unit in units:
            counts[unit.example + 1] += turn.answers(unit)
    starts = np.cumsum(counts)
    assert starts[-1] == len(taught)
    for turn, units in turns:
        for unit in units:
            first = starts[unit.example]
            starts[unit.example] += turn.answers(unit)
            unit.taught = taught[first : starts[unit.example], : turn.outputs]
