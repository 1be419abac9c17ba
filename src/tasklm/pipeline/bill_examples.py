"""The labelled data in a bill of text: which files, and how much of their examples was read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.bill.record import LabelledData, LabelledPart
from tasklm.corpus.corpus_text import licence_of
from tasklm.corpus.licences import RowLicences, as_licence
from tasklm.corpus.tables import TABLES, kind_of, read_rows
from tasklm.errors import DataError
from tasklm.pipeline.bill_parts import Readings, plain_tokens, without_labels
from tasklm.pipeline.context import Trained
from tasklm.pipeline.inputs import InputFile
from tasklm.recipe.data_sections import Data
from tasklm.storage.safe_reading import home_path
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples, EncodedTurns

WITHOUT_LABELS = "without labels"  # examples that stage 2 reads so
_PEEK = 100  # rows that are searched for the names of columns

Place = tuple[str, str]  # task, and the path of a file or folder as the recipe names it


class _Sources:
    """The labelled files and folders of a recipe, found by the file of an example."""

    def __init__(self, trained: Trained) -> None:
        self.data = trained.run.recipe.data
        tasks = trained.task.sources
        named = {one.name: one.data for one in tasks} or {"": self.data}
        self.places: dict[Place, Data] = {}
        self._place_of: dict[Place, Place] = {}
        for task, data in named.items():
            more = (*data.more, *data.more_dev, *data.more_test)
            for path in filter(None, (data.train, data.dev, data.test, *more)):
                place = task, str(home_path(path))
                self.places[place] = data
                self._place_of[place] = place
                for file in trained.run.inputs.of(home_path(path)):
                    self._place_of[task, file.path] = place
        self._stated: dict[str, tuple[str, dict[int, str]]] = {}
        self._licences: dict[tuple[str, str], tuple[str, str]] = {}

    def place_of(self, example: Example) -> Place | None:
        """Which of them an example is from; None for a file that is none of them."""
        return self._place_of.get((example.task, example.file))

    def licence_of(self, example: Example) -> tuple[str, str]:
        """The licence of an example, and who states it."""
        if example.file not in self._stated:
            place = self.place_of(example)
            assert place is not None
            self._stated[example.file] = _stated(Path(example.file), self.places[place])
        column, licences = self._stated[example.file]
        key = example.file, licences.get(example.line, "")
        if key not in self._licences:  # what lies beside a file is looked up once
            licence, by = licence_of(*key, self.data)
            self._licences[key] = licence, f"column {column}" if by == "its column" else by
        return self._licences[key]


def _stated(path: Path, data: Data) -> tuple[str, dict[int, str]]:
    """The column of a table that states licences, and the licence of each row, by its line; none
    for other files.
    """
    if kind_of(path) not in TABLES or path.is_dir():
        return "", {}
    try:
        first = list(islice(read_rows(path), _PEEK))
    except DataError:  # another layout in a file of this name, such as SQuAD's
        return "", {}
    others = {*data.text_column.split(","), data.label_column, data.options_column}
    names = [name for row in first for name in row.values if name not in others]
    column = RowLicences().find(path, list(dict.fromkeys(names)), "")
    if not column:
        return "", {}
    rows = read_rows(path, [column])
    return column, {row.line: as_licence(row.values[column]) for row in rows}


def labelled_data(trained: Trained, readings: Readings) -> list[LabelledData]:
    """The labelled files and folders."""
    sources, inputs = _Sources(trained), trained.run.inputs
    parts: dict[Place, dict[tuple[str, str], LabelledPart]] = defaultdict(dict)
    for place, licence, counts in _counted(trained, readings, sources):
        splits = {name: counts[name] for name in (*_SPLITS, WITHOUT_LABELS) if counts[name]}
        parts[place][licence] = LabelledPart(
            *licence,
            examples=splits,
            tokens=counts["tokens"],
            tokens_read=counts["read"],
            tokens_read_by_run=counts["read by run"],
        )
    leaks = trained.task.splits.leaks
    return [
        LabelledData(
            str(Path(path).absolute()),
            [about_file(file) for file in inputs.of(Path(path))],
            task,
            sum(leaks[name] for name in {path, *(file.path for file in inputs.of(Path(path)))}),
            list(parts[task, path].values()),
        )
        for task, path in sources.places
    ]


_SPLITS = ("train", "dev", "test")


def about_file(file: InputFile) -> dict[str, Any]:
    """A file as a bill lists it."""
    return {
        "path": str(Path(file.path).absolute()),
        "bytes": file.bytes,
        "sha256": file.sha256,
    }


def _counted(
    trained: Trained, readings: Readings, sources: _Sources
) -> Iterator[tuple[Place, tuple[str, str], Counter[str]]]:
    """Yields each source and licence with its examples by split, and their tokens."""
    counts: dict[tuple[Place, tuple[str, str]], Counter[str]] = defaultdict(Counter)

    def add(example: Example, name: str, count: int = 1) -> None:
        place = sources.place_of(example)
        if place is not None:
            counts[place, sources.licence_of(example)][name] += count

    for split, examples in trained.task.splits.named().items():
        for example in examples:
            add(example, split)
    for example in without_labels(trained):
        add(example, WITHOUT_LABELS)
    encoded = trained.parts.stage1_examples
    tokens = tokens_of_groups(encoded)
    own, by_run = readings.own.examples, np.sum([one.examples for one in readings.all], axis=0)
    numbers = {"tokens": tokens, "read": tokens * own, "read by run": tokens * by_run}
    for name, values in numbers.items():
        for example, count in zip(encoded.group_examples, values.tolist(), strict=True):
            add(example, name, count)
    for (place, licence), own_counts in counts.items():
        yield place, licence, own_counts


def tokens_of_groups(encoded: EncodedExamples) -> np.ndarray:
    """The tokens of each group of units, [CLS] and [SEP] not counted."""
    parts = encoded.parts if isinstance(encoded, EncodedTurns) else [encoded]
    return np.concatenate(
        [plain_tokens(one.units, one.vocabulary).reshape(-1, one.together).sum(1) for one in parts]
    )


def files_without_labels(trained: Trained) -> Mapping[str, int]:
    """How many texts stage 2 reads of each file without labels."""
    return Counter(example.file for example in without_labels(trained))
