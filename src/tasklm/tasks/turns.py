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


def lesson_width(task: Task) -> int:
    """How many numbers teachers have for each answer of a task: logits of its labels, or what kinds
    of `text_lessons` have.
    """
    return int(getattr(task, "lesson_width", max(1, len(task.labels))))


def share_taught(
    turns: Sequence[tuple[Turn, Sequence[Unit]]], examples: int, taught: NDArray[np.float32]
) -> None:
    """Gives each unit what teachers say of it: rows are in the order of the examples."""
    counts = np.zeros(examples, np.int64)
    for turn, units in turns:
        for unit in units:
            if rows := unit.rows_of_text:
                counts[unit.example] = rows
            else:
                counts[unit.example] += turn.answers(unit)
    assert counts.sum() == len(taught)
    parts = np.split(taught, np.cumsum(counts)[:-1])
    for turn, units in turns:
        own = [parts[example] for example in dict.fromkeys(unit.example for unit in units)]
        if own:
            units[0].share_lessons(units, np.concatenate(own)[:, : turn.outputs])
