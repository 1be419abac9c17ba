"""Tasks that take turns: a batch is of those that share a head, or of one that has its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasklm.tasks.base import Task, Tokeniser, Unit
from tasklm.tasks.examples import Example
from tasklm.tasks.members import alone


@dataclass(frozen=True)
class Turn:
    """The tasks of one turn."""

    names: tuple[str, ...]
    task: Task  # those that share a head as one, or a task by itself
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
