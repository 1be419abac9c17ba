"""A share of the training examples with their labels; those of the rest are hidden."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

from tasklm.errors import DataError
from tasklm.recipe.schema import Recipe
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.splits import read_splits
from tasklm.tasks.several import members_of


def labelled_data(recipe: Recipe) -> tuple[Task, Splits, list[Example]]:
    """The task of a recipe, its splits, and the examples of train whose labels are not used."""
    data = recipe.data
    if not data.train:
        raise DataError("there is no training file", remedy="Give one: tasklm fit TRAIN --corpus …")
    splits = read_splits(data)
    task = TASKS.get(data.kind).from_examples(splits.train, recipe.kind)
    hidden = hide_labels(task, splits, data.share)
    if hidden:
        task = TASKS.get(data.kind).from_examples(splits.train, recipe.kind)
    return task, splits, hidden


def hide_labels(task: Task, splits: Splits, share: float) -> list[Example]:
    """Takes examples out of train but for a share of the labels; these, without their labels."""
    total = len(splits.train)
    splits.train, hidden = split_by_label_share(task, splits.train, share)
    if hidden:
        splits.notes.append(
            f"data.share: the labels of {len(splits.train):,} of {total:,} training examples are "
            "used"
        )
    return hidden


def split_by_label_share(
    task: Task, train: Sequence[Example], share: float
) -> tuple[list[Example], list[Example]]:
    """The examples whose labels are used, and the others without theirs, in the order of train.

    Those with the lowest hashes of their texts are used, so that a smaller share is a part of a
    larger one, and further ones until every class of train occurs. Of several tasks the same share
    of each is used.
    """
    if share >= 1.0:
        return list(train), []
    groups = [(task, [number for number, _ in enumerate(train)])]
    if members := members_of(task):
        groups = [
            (
                member.task,
                [number for number, one in enumerate(train) if one.task == member.name],
            )
            for member in members
        ]
    used: set[int] = set()
    for own, numbers in groups:
        used |= _used(own, train, numbers, share)
    hidden = [
        dataclasses.replace(example, label=None)
        for number, example in enumerate(train)
        if number not in used
    ]
    return [train[number] for number in sorted(used)], hidden


def _used(task: Task, train: Sequence[Example], numbers: Sequence[int], share: float) -> set[int]:
    """The numbers of the examples of one task whose labels are used."""
    ranked = sorted(numbers, key=lambda number: _hash(train[number]))
    count = max(1, round(share * len(ranked)))
    used = set(ranked[:count])
    covered: set[str] = set()
    for number in ranked:
        example = train[number]
        label = example.label[1] if example.task else example.label
        classes = set(task.classes(label))
        if number in used or not classes <= covered:
            used.add(number)
            covered |= classes
    return used


def _hash(example: Example) -> bytes:
    text = example.text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()
