"""One text, or a pair of texts → one class, with cross-entropy; the head reads the first token and,
if set, markers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import ClassSets
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Elsewhere,
    Floats,
    Label,
    Metric,
    Tokeniser,
    Unit,
    Untuned,
)
from tasklm.tasks.baselines.linear import choose_classes, majority
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.wide import Wide, labels_by
from tasklm.tasks.baselines.wide_fitting import FittedWide, fit_classes
from tasklm.tasks.examples import Example, Finding, Splits, first_few
from tasklm.tasks.marks import MOST as MOST_MARKS
from tasklm.tasks.marks import checked_marks, mark_findings, marked_places, usual_marks
from tasklm.tasks.metrics import class_metric
from tasklm.tasks.readers.folders import is_dataset
from tasklm.tasks.readers.sheets import SheetColumns
from tasklm.tasks.readers.text_files import read_folder
from tasklm.tasks.readers.texts import (
    encode_examples,
    label_name,
    read_text_examples,
    sheet_of_texts,
)
from tasklm.tasks.rivals import Rivals, likeliest
from tasklm.tasks.saved import names_in

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.consistency.texts import TextConsistency

FEW = 5  # examples of a label


@TASKS.register("classify")
class Classify(Untuned):
    """Single-label classification; labels are strings in alphabetical order."""

    kind: ClassVar[str] = "classify"
    classifies, pairs, cased = True, True, False
    reads_vectors = True
    unsmoothed, incomparable, unranked = "", "", ""
    sets, setless = ClassSets(), ""
    metrics: tuple[str, ...] = ("macro_f1", "micro_f1", "accuracy", "weighted_f1", "matthews")
    packs = True

    def __init__(self, labels: Sequence[str], marks: Sequence[str] = ()) -> None:
        self.labels, self.together, self.marks = list(labels), 1, tuple(marks)
        self.reads = 1 + len(self.marks)  # places that make one answer
        self._number = {label: i for i, label in enumerate(self.labels)}
        if len(self.labels) == 2:
            self.metrics = (*self.metrics, "f1")  # of the second class

    @property
    def elsewhere(self) -> Elsewhere:
        meaning = "The softmax of the logits gives the probabilities."
        ending = "" if self.marks else "ForSequenceClassification"
        return Elsewhere(
            "text-classification", ending, meaning, "single_label_classification", marks=self.marks
        )

    @property
    def wide_width(self) -> int:
        return len(self.labels)

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        if path.is_dir() and not is_dataset(path):
            return read_folder(path, labelled)
        return read_text_examples(path, data, labelled, label_name)

    @classmethod
    def sheet(cls, path: Path, data: Data) -> SheetColumns:
        return sheet_of_texts(path, data)

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Classify:
        labels = sorted({str(example.label) for example in train})
        if settings.marks is None:
            return cls(labels, usual_marks(train))
        return cls(labels, checked_marks(train, settings.marks))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Classify:
        marks: list[str] = []
        if values.get("marks"):
            marks = names_in(values, "marks")
        if len(marks) > MOST_MARKS or not all(mark.strip() for mark in marks):
            raise ValueError("marks of the task are too many, or empty")
        return cls(names_in(values, "labels"), marks)

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"kind": self.kind, "labels": self.labels}
        if self.marks:
            values["marks"] = list(self.marks)
        return values

    def example_of(self, text: str) -> Example:
        return Example((text,), None)

    def audit(self, splits: Splits) -> list[Finding]:
        counts = Counter(str(example.label) for example in splits.train)
        ordered = counts.most_common()
        labels = first_few([f"{label} {count:,}" for label, count in ordered], 10)
        message = f"{len(ordered)} labels in train: {labels}; examples: {splits.sizes()}."
        findings = [Finding("ok", "labels", message)]
        most, least = ordered[0], ordered[-1]
        if most[1] >= 10 * least[1]:
            ratio = f"{most[1] / least[1]:.0f}"
            message = (
                f"{most[0]!r} has {ratio} times as many training examples as {least[0]!r}. "
                "Add examples of the rare labels, and keep evaluate.metric = "
                '"macro_f1", the default, which counts all labels alike.'
            )
            brief = f"imbalanced classes, {ratio} to 1: add examples of rare ones; keep macro-F1"
            findings.append(Finding("warning", "imbalance", message, brief=brief))
        few = [label for label, count in ordered if count < FEW]
        if few:
            share = f"{len(few)} of {len(ordered)} labels have"
            message = (
                f"{share} fewer than {FEW} training examples: {', '.join(map(repr, few[:10]))}. "
                "Add examples, or merge or remove these labels."
            )
            brief = f"{share} fewer than {FEW} examples: add some, or merge labels"
            findings.append(Finding("warning", "rare labels", message, brief=brief))
        return [*findings, *mark_findings(splits, self.marks)]

    def classes(self, label: Label) -> list[str]:
        return [str(label)]

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        units = encode_examples(examples, tokeniser, length)
        for unit, example in zip(units, examples, strict=True):
            if example.label is not None:
                unit.targets = np.full(self.reads, self._target(example), np.int64)
            if self.marks:
                unit.places = [0, *marked_places(example, unit, self.marks, tokeniser)]
        return units

    def _target(self, example: Example) -> int:
        if example.label not in self._number:
            raise DataError(
                f"the label {example.label!r} does not occur in train",
                file=example.file,
                line=example.line,
                remedy="Add training examples of it, or delete the row.",
            )
        return self._number[example.label]

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        from tasklm.tasks.heads.layers import TokenHead

        return TokenHead(width, len(self.labels), dropout, normed, self.reads)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        from tasklm.tasks.heads.losses import cross_entropy

        return cross_entropy(outputs, targets[..., :: self.reads])

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        from tasklm.tasks.heads.soft_losses import soft_cross_entropy

        return soft_cross_entropy(outputs, taught, targets[..., :: self.reads] != NONE)

    def lesson(self, outputs: Floats) -> Floats:
        return np.copy(outputs)

    def count(self, targets: Tensor) -> int:
        return int((targets != NONE).sum()) // self.reads

    def consistency(self) -> TextConsistency:
        from tasklm.tasks.consistency.texts import TextConsistency

        return TextConsistency(len(self.labels), reads=self.reads)

    def keep(self, outputs: np.ndarray) -> np.ndarray:
        first: np.ndarray = outputs[0]
        return first

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        if not predictions:
            return []
        logits = np.stack(predictions)
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        probabilities = odds / odds.sum(-1, keepdims=True)
        return [
            {
                "label": self.labels[int(row.argmax())],
                "probabilities": dict(zip(self.labels, map(float, row), strict=True)),
            }
            for row in probabilities
        ]

    def label_of(self, answer: Answer) -> str:
        return str(answer["label"])

    def rivals(self, answer: Answer) -> Rivals:
        return likeliest(answer["probabilities"])

    def metric(self, name: str) -> Metric:
        return class_metric(name, self.labels)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Wide | None = None,
    ) -> dict[str, dict[str, list[Label]]]:
        usual = {split: majority(train, examples) for split, examples in held.items()}
        return {"majority": usual, "TF-IDF + linear": labels_by(wide, self, held) or usual}

    def fit_wide(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        metric: str,
        vectors: WordVectors | None = None,
    ) -> FittedWide | None:
        chosen = choose_classes(train, dev, self.metric(metric), self.marks, vectors)
        if chosen is None:
            return None
        return fit_classes(chosen, train)
