"""The three splits of a data set: read by their kind of task, held out, and freed of leaks."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.storage.safe_reading import home_path, is_there
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example, Splits, left_out_by_file
from tasklm.tasks.readers.formats import recognise
from tasklm.tasks.readers.image_files import refuse_images
from tasklm.tasks.readers.more import add_more


def resolved(data: Data) -> Data:
    """The data with its kind, its columns and the files of a folder of splits filled in, if the
    recipe leaves them open.

    Anything unrecognised is left to classification, whose reader reports what is wrong with a
    table. Of a kind that the recipe states, columns are left to its reader.
    """
    train, stated = home_path(data.train), data.kind != "auto"
    if not data.train or (stated and not train.is_dir()):
        return data
    try:
        recognised = recognise(train)
    except DataError:
        if not is_there(train):
            raise
        return data if stated else dataclasses.replace(data, kind="classify")
    filled: dict[str, Any] = {}
    if not stated:
        filled["kind"] = recognised.kind
        for role, column in recognised.columns.items():
            filled[f"{role}_column"] = getattr(data, f"{role}_column") or column
    for split in recognised.splits.keys() & {"train", "dev", "test"}:
        filled[split] = str(recognised.splits[split])
        if split != "train":
            filled[split] = getattr(data, split) or filled[split]
    return dataclasses.replace(data, **filled)


def read_splits(data: Data) -> Splits:
    """The splits train, dev and test; without a dev file a share of train is held out. Notes tell
    what was detected and changed.
    """
    if not data.train:
        raise DataError(
            "there is no training file",
            file="data.train",
            remedy="Name one: tasklm fit TRAIN, or data.train in the recipe.",
        )
    notes: list[str] = []
    data = resolved(data)
    refuse_images(data.kind, "this")
    train = _split("train", data.train, data, notes)
    dev = _split("dev", data.dev, data, notes)
    test = _split("test", data.test, data, notes)
    _require_same_reading(data, notes)
    _require_classes(train, data.train)
    given, leaks = [*train, *dev], Counter[str]()
    if data.leaks == "drop":
        train, dev = _without_leaks(train, dev, test, data, notes)
        leaks = left_out_by_file(given, [*train, *dev])
    if not data.dev:
        train, dev = _held_out(train, data)
        notes.append(
            f"dev: {len(dev):,} examples held out of train, "
            f"which keeps {len(train):,}; identical texts stay together"
        )
    splits = Splits(train, dev, test, notes, leaks)
    if data.more or data.more_dev or data.more_test:
        add_more(splits, data, _read_more, _held_out)
    _require_known_labels(splits.train, {"dev": splits.dev, "test": splits.test}, data)
    return splits


def _read_more(path: str, data: Data) -> list[Example]:
    """The examples of a further file, read as train is."""
    examples, _ = TASKS.get(data.kind).read(home_path(path), data, labelled=True)
    return examples


def _split(name: str, path: str, data: Data, notes: list[str]) -> list[Example]:
    """The examples of a split, empty if it has no file; notes are added."""
    if not path:
        return []
    kind, file = TASKS.get(data.kind), home_path(path)
    try:
        examples, reading = kind.read(file, data, labelled=True)
    except DataError as error:
        if name != "test" or error.line != 1 or not _reads_without_labels(kind, file, data):
            raise
        remedy = (
            f"{error.remedy} If it has no labels, leave --test out (or the file out of the "
            "folder): the model labels it afterwards (tasklm predict)."
        )
        raise DataError(error.problem, file=file, line=1, remedy=remedy) from None
    labels = {example.label for example in examples if isinstance(example.label, str)}
    counted = f"{len(examples):,} examples"
    if labels:
        counted += f", {len(labels):,} labels"
    notes += [f"{name}: {note}" for note in (*reading[:1], counted, *reading[1:])]
    return examples


def _reads_without_labels(kind: type[Task], file: Path, data: Data) -> bool:
    try:
        return bool(kind.read(file, data, labelled=False)[0])
    except DataError:
        return False


def _require_same_reading(data: Data, notes: Sequence[str]) -> None:
    """Raises if dev or test were read differently from train: the first note of each names the
    columns.
    """
    taken: dict[str, str] = {}
    for note in notes:
        name, _, reading = note.partition(": ")
        taken.setdefault(name, reading)
    for name, file in (("dev", data.dev), ("test", data.test)):
        if file and taken[name] != taken["train"]:
            raise DataError(
                f"{name} has other columns than train: {taken[name]}; train: {taken['train']}",
                file=file,
                line=1,
                remedy=(
                    "Give the columns of all files the same names, "
                    "or name them with --text-column and --label-column."
                ),
            )


def _require_classes(train: Sequence[Example], file: str) -> None:
    if isinstance(train[0].label, str) and len({example.label for example in train}) == 1:
        raise DataError(
            f"all {len(train):,} examples have the same label, {train[0].label!r}",
            file=file,
            line=train[0].line,
            remedy=(
                "Add examples of another label, "
                "or name another --label-column (recipe: data.label_column)."
            ),
        )


def _require_known_labels(
    train: Sequence[Example], others: dict[str, list[Example]], data: Data
) -> None:
    known = {example.label for example in train if isinstance(example.label, str)}
    for split, examples in others.items():
        strange = [
            example
            for example in examples
            if isinstance(example.label, str) and example.label not in known
        ]
        if strange:
            also = ""
            if data.leaks == "drop":
                also = " (after examples in two splits were removed from train)"
            problem = f"label {strange[0].label!r} occurs in {split} but not in train{also}"
            raise DataError(
                f"{problem}; {len(strange):,} of {len(examples):,} examples have such labels",
                file=strange[0].file,
                line=strange[0].line,
                remedy="Add training examples with this label, correct it, or delete these rows.",
            )


def _without_leaks(
    train: list[Example], dev: list[Example], test: list[Example], data: Data, notes: list[str]
) -> tuple[list[Example], list[Example]]:
    """Train and dev without the examples whose text is scored later."""
    test_keys = {example.key for example in test}
    dev_left = [example for example in dev if example.key not in test_keys]
    later = test_keys | {example.key for example in dev}
    train_left = [example for example in train if example.key not in later]
    for name, before, after, where in (
        ("train", train, train_left, "dev or test"),
        ("dev", dev, dev_left, "test"),
    ):
        if len(before) > len(after):
            count = f"{len(before) - len(after):,} examples"
            notes.append(f"{name}: {count} left out because they also occur in {where}")
        if before and not after:
            raise DataError(
                f"every example of {name} also occurs in a later split, so none is left",
                file=before[0].file,
                line=before[0].line,
                remedy='Split the data again, without overlap (or set data.leaks = "keep").',
            )
    _require_classes(train_left, data.train)
    return train_left, dev_left


def _held_out(train: list[Example], data: Data) -> tuple[list[Example], list[Example]]:
    """Train and dev: a share of each class, chosen by the hash of the text, so that the order of
    rows does not matter.
    """

    def class_of(example: Example) -> str:
        return example.label if isinstance(example.label, str) else ""

    groups: dict[int, list[Example]] = defaultdict(list)  # identical texts go to the same side
    for example in train:
        groups[example.key].append(example)
    left = Counter(class_of(example) for example in train)
    wanted = {
        label: max(round(count * data.dev_share), int(count >= 4)) for label, count in left.items()
    }
    chosen: set[int] = set()
    for key in sorted(groups):
        labels = Counter(class_of(example) for example in groups[key])
        if all(wanted[label] >= count and left[label] > count for label, count in labels.items()):
            chosen.add(key)
            left.subtract(labels)
            for label, count in labels.items():
                wanted[label] -= count
    if not chosen:
        raise DataError(
            f"{len(train)} examples are too few to hold out a share of {data.dev_share} as dev",
            file=data.train,
            line=train[0].line,
            remedy="Add examples, or give a dev file with --dev (recipe: data.dev).",
        )
    rest = [example for example in train if example.key not in chosen]
    held = [example for example in train if example.key in chosen]
    return rest, held
