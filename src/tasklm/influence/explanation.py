"""Why a model predicts something: the examples and passages that pushed for and against it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tasklm.device.machine import Machine
from tasklm.evaluate.overlaps import Overlaps, overlaps
from tasklm.influence.attribution import ExampleAttribution, PassageAttribution, Products
from tasklm.models.task_model import LoadedModels, answers_of
from tasklm.select.base import read_selection_texts, selection_is_clear
from tasklm.storage.checksums import require_whole
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples

MOST_EXAMPLES = 1000  # training examples that are compared with a text …
MOST_PASSAGES = 200  # … and selected passages: those that share its rarest words


@dataclass(frozen=True)
class Push:
    """A text that the model was trained on, and how it pushed."""

    # cosine of the gradients, −1 … 1: above 0 it pushed for the label, below 0 against it
    score: float
    product: float  # of the gradients, as long as they are
    label: str | None  # of a training example
    text: str
    shared: list[str]  # words in common, the rarest first
    where: str  # file and line of an example, source of a passage
    id: str | None = None  # of a passage


@dataclass(frozen=True)
class Pushes:
    """What pushed for a label and against it, strongest first."""

    pushed_for: list[Push]
    pushed_against: list[Push]
    compared: int  # texts whose gradients were computed …
    in_all: int  # … of so many


@dataclass(frozen=True)
class Explanation:
    """A prediction and what pushed for and against it."""

    text: str
    label: str
    probability: float | None  # where the kind gives one
    examples: Pushes
    passages: Pushes | None  # None where the model was trained on no selected text


class ExampleSide:
    """Compares texts with the examples that a model was fine-tuned on."""

    def __init__(self, loaded: LoadedModels, machine: Machine, train: Sequence[Example]) -> None:
        self.loaded, self.task, self.train = loaded, loaded.task, train
        self.machine, self.gradients = (
            machine,
            ExampleAttribution(loaded.model, loaded.task, machine),
        )

    def predicted(self, given: Sequence[str | Example]) -> tuple[EncodedExamples, list[Answer]]:
        """The texts or examples labelled by the model's own predictions, and these for people."""
        examples = [self.task.asked(one) if isinstance(one, str) else one for one in given]
        queries = self.loaded.encoded(examples)
        answers = answers_of([self.gradients.model], self.task, queries, self.machine)
        labelled = [
            replace(example, label=self.task.label_of(answer))
            for example, answer in zip(queries.examples, answers, strict=True)
        ]
        return self.loaded.encoded(labelled), answers

    def fit_into_a_row(self, examples: Sequence[Example]) -> np.ndarray:
        """Which examples do not go on in further rows, as long ones do that are not compared."""
        units = self.task.encode(examples, self.loaded.vocabulary, self.loaded.length)
        rows = np.bincount([unit.example for unit in units], minlength=len(examples))
        return np.asarray(rows == self.task.together)

    def attributions(
        self, texts: Sequence[str], queries: EncodedExamples, top: int, most: int = MOST_EXAMPLES
    ) -> list[Pushes]:
        """What pushed for and against the target of each text; candidates are `most` for each."""
        shared = [overlaps(text, (example.text for example in self.train)) for text in texts]
        places = np.unique(np.concatenate([words.nearest(most) for words in shared]))
        places = places[self.fit_into_a_row([self.train[place] for place in places])]
        examples = [self.train[place] for place in places]
        products = self.gradients.products(queries, self.loaded.encoded(examples))
        return [
            ranked(products, column, places, words, self._described, top)
            for column, words in enumerate(shared)
        ]

    def _described(self, place: int) -> dict[str, Any]:
        """What people see of a training example."""
        example = self.train[place]
        return {
            "label": " ".join(self.task.classes(example.label)),
            "text": example.text,
            "where": f"{example.file}, line {example.line}",
        }


class PassageSide:
    """Compares a text with the selected passages of a run."""

    def __init__(self, run: Path, task: Task, device: torch.device) -> None:
        self.path = run / "selected" / "selected.parquet"
        require_whole(self.path.parent)
        self.gradients = PassageAttribution(run, task, device)

    def attributions(
        self, text: str, queries: EncodedExamples, top: int, most: int = MOST_PASSAGES
    ) -> Pushes:
        """What pushed for and against the target of a text."""
        shared = overlaps(text, itertools.chain.from_iterable(read_selection_texts(self.path)))
        places = shared.nearest(most)
        rows = self._rows(places)
        products = self.gradients.products(queries, [row["text"] for row in rows])
        by_place = dict(zip(places.tolist(), rows, strict=True))

        def described(place: int) -> dict[str, Any]:
            row = by_place[place]
            return {"label": None, "text": row["text"], "where": row["source"], "id": row["id"]}

        return ranked(products, 0, places, shared, described, top)

    def _rows(self, places: np.ndarray) -> list[dict[str, Any]]:
        """The passages at some places, in order, without holding the others in memory."""
        rows, first = [], 0
        with selection_is_clear(self.path), pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(columns=["id", "text", "source"]):
                inside = places[(places >= first) & (places < first + len(batch))] - first
                rows += batch.take(pa.array(inside)).to_pylist()
                first += len(batch)
        return rows


def ranked(
    products: Products,
    column: int,
    places: np.ndarray,
    shared: Overlaps,
    described: Callable[[int], dict[str, Any]],
    top: int,
) -> Pushes:
    """The texts at `places` that pushed most for and against the query of a column.

    `described` gives what people see of a text.
    """
    cosines, of_column = products.cosines()[:, column], products.products[:, column]
    order = np.argsort(-cosines, kind="stable")

    def push(row: int) -> Push:
        place = int(places[row])
        words = shared.shared(place)
        score, product = float(cosines[row]), float(of_column[row])
        return Push(score, product, shared=words, **described(place))

    most = [push(row) for row in order[:top].tolist() if cosines[row] > 0]
    least = [push(row) for row in order[::-1][:top].tolist() if cosines[row] < 0]
    return Pushes(most, least, len(places), len(shared))
