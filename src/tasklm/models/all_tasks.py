"""The answers of all tasks of a model to the same inputs, for which the encoder runs once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasklm.models.answering import Answering
from tasklm.tasks.base import Answer, Unit
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples

Row = tuple[int, int, tuple[int, ...]]  # an input, where its second text begins, and the tokens


@dataclass(frozen=True)
class SharedRows:
    """Rows of tokens that units of several tasks share, with the places that any of them reads."""

    units: list[Unit]
    numbers: list[int]  # of each task's unit: its row …
    places: list[list[int]]  # … and its places among those of the row

    @classmethod
    def of(cls, units: Sequence[Unit], inputs: Sequence[int]) -> SharedRows:
        """The rows of some units; those of different inputs stay apart."""
        rows: dict[Row, list[Unit]] = {}
        keys: list[Row] = []
        for unit in units:
            keys.append((inputs[unit.example], unit.second, tuple(unit.tokens)))
            rows.setdefault(keys[-1], []).append(unit)
        shared = [_joined(group) for group in rows.values()]
        numbers = {key: number for number, key in enumerate(rows)}
        places = []
        for key, unit in zip(keys, units, strict=True):
            read = shared[numbers[key]].places
            places.append([read.index(place) for place in unit.places])
        return cls(shared, [numbers[key] for key in keys], places)


def _joined(units: Sequence[Unit]) -> Unit:
    """A unit with the places of some others that have the same tokens."""
    read = sorted(set().union(*(unit.places for unit in units)))
    wide = None
    width = max(unit.wide_shape[1] for unit in units)
    if width:
        wide = np.zeros((len(read), width), np.float32)
        for unit in units:  # each has its own columns
            for place, added in zip(unit.places, _added(unit), strict=True):
                wide[read.index(place)] += added
    first = units[0]
    return Unit(first.tokens, read, None, first.second, wide=wide)


def _added(unit: Unit) -> Sequence[np.ndarray]:
    """What the wide part adds at each place."""
    added = unit.added()
    assert added is not None
    return list(np.broadcast_to(added, (len(unit.places), added.shape[1])))


def predictions_of_shared_rows(
    model: Answering, encoded: EncodedExamples, inputs: Sequence[int]
) -> list[Any]:
    """The outputs of the units of tasks that share a head; equal rows are read once."""
    rows, loaded = SharedRows.of(encoded.units, inputs), model.loaded
    shared = EncodedExamples(encoded.examples, rows.units, loaded.vocabulary, loaded.length)
    outputs = model.predictions(shared)
    return [
        outputs[number][places] for number, places in zip(rows.numbers, rows.places, strict=True)
    ]


def answers_of_all(
    model: Answering, given: Sequence[Mapping[str, Example]]
) -> list[dict[str, Answer]]:
    """The answer of each task to each input; an input has an example for the tasks that take it."""
    joined, inputs = list[Example](), list[int]()
    for number, examples in enumerate(given):
        joined += [dataclasses.replace(one, task=name) for name, one in examples.items()]
        inputs += [number] * len(examples)
    if not joined:
        return []
    encoded, task = model.loaded.encoded(joined), model.loaded.task
    units, predictions = encoded.units, model.predictions_of_all(encoded, inputs)
    answers: list[dict[str, Answer]] = [{} for _ in given]
    for number, answer in zip(inputs, task.answers(joined, units, predictions), strict=True):
        answers[number][answer.pop("task")] = answer
    return answers
