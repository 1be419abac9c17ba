"""Why a model predicts something: the examples and passages that support it or speak against it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tasklm.device.machine import Machine
from tasklm.evaluate.overlaps import Overlaps, overlaps
from tasklm.influence.attribution import ExampleAttribution, PassageAttribution, Products
from tasklm.influence.evidence import Attribution, Attributions
from tasklm.models.one_task import alone
from tasklm.models.task_model import LoadedModels, answers_of
from tasklm.select.base import read_selection_texts, selection_is_clear
from tasklm.storage.checksums import require_whole
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.several import member_of
from tasklm.tokens.examples import EncodedExamples

MOST_EXAMPLES = 1000  # training examples that are compared with a text …
MOST_PASSAGES = 200  # … and selected passages: those that share its rarest words


class ExampleSide:
    """Compares texts with the examples that a model was fine-tuned on."""

    def __init__(self, loaded: LoadedModels, machine: Machine, train: Sequence[Example]) -> None:
        self.loaded, self.task, self.train = loaded, loaded.task, train
        self.machine, self.gradients = (
            machine,
            ExampleAttribution(loaded.model, loaded.task, machine),
        )

    def of(self, name: str) -> ExampleSide:
        """The same for one of several tasks and its own examples, with the same encoder."""
        own = member_of(self.task, name).own(self.train)
        return ExampleSide(alone(self.loaded, name), self.machine, own)

    def predicted(self, given: Sequence[str | Example]) -> tuple[EncodedExamples, list[Answer]]:
        """The texts or examples labelled with the model's own predictions, and readable forms of
        these.
        """
        examples = [self.task.example_of(one) if isinstance(one, str) else one for one in given]
        queries = self.loaded.encoded(examples)
        answers = answers_of([self.gradients.model], self.task, queries, self.machine)
        labelled = [
            replace(example, label=self.task.label_of(answer))
            for example, answer in zip(queries.examples, answers, strict=True)
        ]
        return self.loaded.encoded(labelled), answers

    def fit_into_a_row(self, examples: Sequence[Example]) -> np.ndarray:
        """Which examples fit into one row; longer ones are not compared."""
        units = self.task.encode(examples, self.loaded.vocabulary, self.loaded.length)
        rows = np.bincount([unit.example for unit in units], minlength=len(examples))
        return np.asarray(rows == self.task.together)

    def attributions(
        self, texts: Sequence[str], queries: EncodedExamples, top: int, most: int = MOST_EXAMPLES
    ) -> list[Attributions]:
        """The attributions of the target of each text, among at most `most` candidates each."""
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
        """The readable form of a training example."""
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

    def of(self, name: str) -> PassageSide:
        """The same for one of several tasks, with the same encoder."""
        own = copy(self)
        own.gradients = self.gradients.of(name)
        return own

    def attributions(
        self, text: str, queries: EncodedExamples, top: int, most: int = MOST_PASSAGES
    ) -> Attributions:
        """The attributions of the target of a text."""
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
        """The passages at some positions, in order, without holding the others in memory."""
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
) -> Attributions:
    """The texts at `places` that most support the query of a column, and that most speak against
    it.

    `described` returns the readable form of a text.
    """
    cosines, of_column = products.cosines()[:, column], products.products[:, column]
    order = np.argsort(-cosines, kind="stable")

    def attribution(row: int) -> Attribution:
        place = int(places[row])
        words = shared.shared(place)
        score, product = float(cosines[row]), float(of_column[row])
        return Attribution(score, product, shared=words, **described(place))

    most = [attribution(row) for row in order[:top].tolist() if cosines[row] > 0]
    least = [attribution(row) for row in order[::-1][:top].tolist() if cosines[row] < 0]
    return Attributions(most, least, len(places), len(shared))
