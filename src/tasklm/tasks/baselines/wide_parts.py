"""The wide parts of several tasks, whose outputs stand in the columns of their tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.storage.files import write_text
from tasklm.tasks.base import Task, Unit, split_by_unit
from tasklm.tasks.baselines.wide import FOLDER, MOST_REMEMBERED, Remembered, Wide
from tasklm.tasks.baselines.wide import FORMAT as WIDE_FORMAT
from tasklm.tasks.examples import Example
from tasklm.tasks.saved import of_format, text_in, whole_in

FORM = "several"
MOST = 1_000_000  # columns


@dataclass(frozen=True)
class WideParts:
    """A wide part for each task; None for one without any, to whose outputs nothing is added."""

    parts: Mapping[str, Wide | None]
    columns: Mapping[str, tuple[int, int]]  # of each task: the first, and how many
    remembered: list[Remembered] = field(
        default_factory=list, init=False, compare=False, repr=False
    )

    @property
    def width(self) -> int:
        """How many outputs it has for each answer."""
        return max(first + count for first, count in self.columns.values())

    def outputs(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """What is added to the head's outputs, (answers, outputs)."""
        known = [one for one in self.remembered if one.examples is examples]
        for one in known:
            if one.decisions is not None:
                return one.decisions.astype(np.float32, copy=False)
        outputs = self._computed(examples)
        for one in known:
            if outputs.nbytes <= MOST_REMEMBERED:
                one.decisions = outputs.astype(np.float64)
        return outputs

    def remember(self, examples: Sequence[Example]) -> None:
        """Computes the outputs for this list only once; it must not change from now on."""
        self.remembered.append(Remembered(examples))

    def _computed(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        parts = {name: part for name, part in self.parts.items() if part is not None}
        own = {name: part.outputs(_own(examples, name)) for name, part in parts.items()}
        return self.laid_out(examples, own)

    def laid_out(
        self, examples: Sequence[Example], outputs: Mapping[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """The outputs of each task in its columns and at its examples, 0 elsewhere.

        Examples of tasks with heads of their own are passed by.
        """
        examples = [one for one in examples if one.task in self.columns]
        rows: list[NDArray[np.float32]] = [np.zeros((1, self.width), np.float32) for _ in examples]
        for name, own in outputs.items():
            places = [place for place, one in enumerate(examples) if one.task == name]
            if not places:
                continue
            first, count = self.columns[name]
            units = self._units(name, _own(examples, name))
            for place, answers in zip(places, split_by_unit(units, own), strict=True):
                rows[place] = np.zeros((len(answers), self.width), np.float32)
                rows[place][:, first : first + count] = answers
        return np.concatenate([np.zeros((0, self.width), np.float32), *rows])

    def _units(self, name: str, examples: Sequence[Example]) -> list[Unit]:
        part = self.parts[name]
        if part is None:
            return [Unit([], [0], None, example=number) for number in range(len(examples))]
        return part.features.units(examples)

    def rows_of(
        self, examples: Sequence[Example], outputs: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        """The outputs of each example of the tasks that share a head."""
        sharing = [one for one in examples if one.task in self.columns]
        counts = np.ones(len(sharing), np.int64)
        for name in self.parts:
            places = [place for place, one in enumerate(sharing) if one.task == name]
            units = self._units(name, _own(sharing, name))
            counts[places] = [len(unit.places) for unit in units]
        return np.split(outputs, np.cumsum(counts)[:-1])

    def units_with(
        self, task: Task, examples: Sequence[Example], outputs: Any
    ) -> tuple[list[Unit], list[Any]]:
        """Units of examples, and what a task keeps of their outputs."""
        units: list[Unit] = [Unit([], [0], None)] * len(examples)
        for name in self.parts:
            places = [place for place, one in enumerate(examples) if one.task == name]
            for place, unit in zip(places, self._units(name, _own(examples, name)), strict=True):
                unit.example = place
                units[place] = unit
        Unit.share_out(units, np.asarray(outputs, np.float64))
        return units, [task.keep(np.asarray(unit.added(), np.float64)) for unit in units]

    def save(self, folder: Path) -> None:
        """Writes the parts, each in a folder by its number, and wide.json, what they are."""
        folder.mkdir(parents=True, exist_ok=True)
        tasks = []
        for number, (name, part) in enumerate(self.parts.items()):
            first, count = self.columns[name]
            tasks.append({"name": name, "first": first, "count": count, "fitted": part is not None})
            if part is not None:
                part.save(folder / str(number))
        about = {"format": WIDE_FORMAT, "form": FORM, "tasks": tasks}
        write_text(folder / "wide.json", json.dumps(about) + "\n")

    @classmethod
    def load(cls, folder: Path) -> WideParts:
        """The parts that `save` wrote; raises ValueError if their files do not fit together."""
        about = of_format(folder / "wide.json", WIDE_FORMAT, "Train the model again.")
        parts: dict[str, Wide | None] = {}
        columns: dict[str, tuple[int, int]] = {}
        for number, one in enumerate(_listed(about)):
            name = text_in(one, "name")
            columns[name] = whole_in(one, "first", 0, MOST), whole_in(one, "count", 1, MOST)
            parts[name] = Wide.load(folder / str(number)) if one["fitted"] else None
            part = parts[name]
            if part is not None and part.width != columns[name][1]:
                raise ValueError(f"the wide part of {name!r} has {part.width} outputs")
        if not parts:
            raise ValueError("wide.json lists no task")
        return cls(parts, columns)


def _listed(about: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    tasks = about["tasks"]
    if not isinstance(tasks, list) or not all(isinstance(one, dict) for one in tasks):
        raise ValueError("tasks of wide.json is not a list of tasks")
    return tasks


def _own(examples: Sequence[Example], name: str) -> list[Example]:
    return [one for one in examples if one.task == name]


AnyWide = Wide | WideParts


def read_wide(folder: Path) -> AnyWide:
    """The wide part in a folder, of one task or of several."""
    about = of_format(folder / "wide.json", WIDE_FORMAT, "Train the model again.")
    if about["form"] == FORM:
        return WideParts.load(folder)
    return Wide.load(folder)


def load_wide(folder: Path) -> AnyWide | None:
    """The wide part of a model in a folder; None if it has none."""
    if not (folder / FOLDER).is_dir():
        return None
    return read_wide(folder / FOLDER)
