"""The sources in a bill of text: the files of the corpus and the labelled data, each with what was
read of it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.bill.record import TextFile, TextPart
from tasklm.corpus.corpus_text import licence_of
from tasklm.corpus.licences import place_of
from tasklm.pipeline.context import Trained
from tasklm.pipeline.linear_part import vector_passages
from tasklm.pipeline.raw_text import SELECTED_TEXT
from tasklm.pipeline.selection import NEAR_COPIES
from tasklm.select.base import read_selection
from tasklm.storage.checksums import load_array
from tasklm.tasks.base import Unit
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.reading import Reading

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Readings:
    """What the trainings of stage 1 have read, and which of them is the model's."""

    all: Sequence[Reading]
    model: int  # from 1

    @property
    def own(self) -> Reading:
        """That of the model."""
        return self.all[self.model - 1]


def text_files(trained: Trained, readings: Readings) -> list[TextFile]:
    """The files of the corpus."""
    corpus = trained.corpus
    if corpus is None:
        return []
    store, data = corpus.store, trained.run.recipe.data
    columns = _columns(trained, readings)
    paths = [_path(file) for file in corpus.text.files]
    parts: dict[int, dict[tuple[str, str], dict[str, int]]] = defaultdict(dict)
    for number, portion in enumerate(store.portions):
        licence = licence_of(paths[portion.file], portion.licence, data)
        if licence[1] == "its column":
            licence = licence[0], f"column {store.files[portion.file].licence_column}"
        counts = {name: int(values[number]) for name, values in columns.items()}
        before = parts[portion.file].get(licence, dict.fromkeys(counts, 0))
        parts[portion.file][licence] = {name: before[name] + counts[name] for name in counts}
    return [
        TextFile(
            path,
            file.bytes,
            file.sha256,
            file.documents,
            file.empty,
            file.left_out,
            file.skipped,
            [TextPart(name, by, **counts) for (name, by), counts in parts[number].items()],
        )
        for number, (path, file) in enumerate(zip(paths, store.files, strict=True))
    ]


def _path(file: Any) -> str:
    """The absolute path of a file of a corpus, or its address on a cluster."""
    name = str(getattr(file, "path", file))
    return name if "://" in name else str(place_of(Path(name)))


def _columns(trained: Trained, readings: Readings) -> dict[str, Ints]:
    """What was read, by portion."""
    corpus = trained.corpus
    assert corpus is not None
    store = corpus.store
    count = len(store.portions)

    def per_portion(numbers: Ints, values: Ints | None = None) -> Ints:
        """The number of passages of each portion, or the sums of their values."""
        sums = np.bincount(store.portions_of(numbers), values, count)
        return sums.astype(np.int64)

    columns: dict[str, Ints] = {
        name: np.array([getattr(portion, name) for portion in store.portions], np.int64)
        for name in ("passages", "repeats", "elsewhere")
    }
    columns["contaminated"] = per_portion(np.flatnonzero(corpus.contamination.banned))
    columns["vector_passages"] = per_portion(vector_passages(trained.run, trained.task, corpus))
    text = trained.parts.external
    if trained.selected is None or text is None:
        return columns
    by_words = "candidates" if trained.run.recipe.select.by_influence else "selected"
    copies = load_array(trained.run.artefacts.path(by_words) / NEAR_COPIES, np.int64)
    numbers = read_selection(trained.selected, "number")["number"].to_numpy()
    rows, tokens = _stage2_text(trained)
    by_run = np.sum([one.text for one in readings.all], axis=0)
    return {
        **columns,
        "near_copies": per_portion(copies),
        "selected": per_portion(numbers),
        "tokens": per_portion(numbers, text.lengths),
        "tokens_read": per_portion(numbers, readings.own.text),
        "tokens_read_by_run": per_portion(numbers, by_run),
        "tokens_counted": per_portion(numbers, readings.own.counted),
        "stage2_texts": per_portion(numbers[rows]),
        "stage2_tokens": per_portion(numbers[rows], tokens),
    }


def _stage2_text(trained: Trained) -> tuple[Ints, Ints]:
    """The rows of the selection that pieces of text in stage 2 are from, and their tokens."""
    rows: list[int] = []
    tokens: list[Ints] = []
    for encoded in (trained.parts.raw, trained.parts.lessons):
        if encoded is not None:
            places = [at for at, one in enumerate(encoded.examples) if one.file == SELECTED_TEXT]
            rows += [encoded.examples[place].line - 1 for place in places]
            tokens.append(tokens_of_examples(encoded)[places])
    return np.array(rows, np.int64), np.concatenate([np.zeros(0, np.int64), *tokens])


def tokens_of_examples(encoded: EncodedExamples) -> Ints:
    """The tokens of each example."""
    owners = [unit.example for unit in encoded.units]
    tokens = plain_tokens(encoded.units, encoded.vocabulary)
    return np.bincount(owners, tokens, len(encoded.examples)).astype(np.int64)


def plain_tokens(units: Sequence[Unit], vocabulary: Vocabulary) -> Ints:
    """The tokens of each unit, [CLS] and [SEP] not counted."""
    marks = (vocabulary.cls, vocabulary.sep)
    counts = [len(unit.tokens) - sum(unit.tokens.count(mark) for mark in marks) for unit in units]
    return np.array(counts, np.int64)


def without_labels(trained: Trained) -> list[Example]:
    """The examples of files whose texts stage 2 reads without their labels."""
    raw = trained.parts.raw
    return [] if raw is None else [one for one in raw.examples if one.file != SELECTED_TEXT]
