"""One text or a pair → any number of labels: a sigmoid for each, with thresholds chosen on dev."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tasklm.console.markdown import code
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import LabelSets
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
    score,
)
from tasklm.tasks.baselines.linear import Setting, Targets, Trainer
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.wide import Wide, labels_by
from tasklm.tasks.baselines.wide_fitting import FittedWide, fit_labels
from tasklm.tasks.examples import Example, Finding, Splits, first_few
from tasklm.tasks.metrics import label_set_metric
from tasklm.tasks.readers.label_sets import Joined, label_set, split_names
from tasklm.tasks.readers.sheets import SheetColumns
from tasklm.tasks.readers.texts import (
    LABEL_NAMES,
    encode_examples,
    read_text_examples,
    sheet_of_texts,
)
from tasklm.tasks.rivals import Rivals, nearest_threshold
from tasklm.tasks.saved import names_in, numbers_in

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.consistency.texts import TextConsistency

SET_NAMES = ("labels", "tags", "categories", "classes", "topics", *LABEL_NAMES)
FEW = 5  # training examples of a label


@TASKS.register("multilabel")
class Multilabel:
    """Sets of labels; the label of an example is the sorted tuple of its names."""

    kind: ClassVar[str] = "multilabel"
    classifies, pairs, cased = False, True, False
    reads_vectors = True
    unsmoothed = "each label is decided by itself, without classes beside it"
    incomparable = unranked = ""
    sets, setless = LabelSets(), ""
    metrics: tuple[str, ...] = ("micro_f1", "macro_f1", "accuracy")
    packs: bool = True

    def __init__(self, labels: Sequence[str], thresholds: Sequence[float] = ()) -> None:
        self.labels = list(labels)
        self.thresholds = [float(threshold) for threshold in thresholds] or [0.5] * len(self.labels)
        self.together = 1

    @property
    def elsewhere(self) -> Elsewhere:
        """The equivalent in other programs: text classification with several labels."""
        listed = ", ".join(
            f"{code(label)} {value:.3g}"
            for label, value in zip(self.labels, self.thresholds, strict=True)
        )
        meaning = (
            "The sigmoid of each logit is the probability of its label, which is assigned at or "
            f"above its threshold: {listed}."
        )
        return Elsewhere(
            "text-classification",
            "ForSequenceClassification",
            meaning,
            "multi_label_classification",
        )

    @property
    def wide_width(self) -> int:
        """An output per label."""
        return len(self.labels)

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The examples of a table and notes; a cell has a list of names, or a text with | or ,
        between them.
        """
        examples, notes = read_text_examples(path, data, labelled, label_set, SET_NAMES)
        if not labelled:
            return examples, notes
        names = list(chain.from_iterable(example.label for example in examples))
        texts = [name for name in names if isinstance(name, Joined)]
        mark = "|" if any("|" in text for text in texts) else ","
        if any(mark in text for text in texts):
            notes.append(f"labels are separated by {mark!r}")
        return [
            replace(example, label=split_names(example.label, mark)) for example in examples
        ], notes

    @classmethod
    def sheet(cls, path: Path, data: Data) -> SheetColumns:
        return sheet_of_texts(path, data, SET_NAMES)

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Multilabel:
        """The task with the labels of train."""
        labels = sorted(set(chain.from_iterable(example.label for example in train)))
        if not labels:
            remedy = "Name another --label-column (recipe: data.label_column)."
            raise DataError("no training example has a label", file=train[0].file, remedy=remedy)
        return cls(labels)

    def example_of(self, text: str) -> Example:
        """The example of a single text."""
        return Example((text,), None)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Multilabel:
        """The task that `to_dict` described."""
        labels = names_in(values, "labels")
        if not values["thresholds"]:
            return cls(labels)
        return cls(labels, numbers_in(values, "thresholds", len(labels)))

    def to_dict(self) -> dict[str, Any]:
        """The kind, the labels and their thresholds."""
        return {"kind": self.kind, "labels": self.labels, "thresholds": self.thresholds}

    def audit(self, splits: Splits) -> list[Finding]:
        """The number of labels per example, rare labels, and labels missing from train."""
        findings = [self._sizes(splits)]
        counts = Counter(chain.from_iterable(example.label for example in splits.train))
        few = [label for label in self.labels if counts[label] < FEW]
        if few:
            message = (
                f"{len(few)} of {len(self.labels)} labels have "
                f"fewer than {FEW} training examples: {first_few(list(map(repr, few)), 10)}. "
                "Add examples, or merge or remove these labels."
            )
            rare = f"{len(few)} of {len(self.labels)} labels have fewer than {FEW} examples"
            findings.append(
                Finding(
                    "warning", "rare labels", message, brief=f"{rare}: add some, or merge labels"
                )
            )
        known = set(self.labels)
        for name in ("dev", "test"):
            part = splits.named().get(name, [])
            strange = [example for example in part if not known.issuperset(example.label)]
            if strange:
                used = set(chain.from_iterable(example.label for example in strange))
                missing = sorted(used - known)
                message = (
                    f"{len(strange):,} of the {len(part):,} examples of {name} have labels that "
                    f"do not occur in train: {first_few(list(map(repr, missing)), 10)}. "
                    "They count as missed; add training examples of them, or correct them."
                )
                examples = tuple(
                    f"{example.file}, line {example.line}: {', '.join(example.label)}"
                    for example in strange[:3]
                )
                brief = (
                    f"{len(strange):,} examples of {name} "
                    f"have labels unknown to train: add examples of them"
                )
                findings.append(Finding("warning", "unknown labels", message, examples, brief))
        return findings

    def _sizes(self, splits: Splits) -> Finding:
        mean = sum(len(example.label) for example in splits.train) / len(splits.train)
        bare = {
            name: sum(not example.label for example in part)
            for name, part in splits.named().items()
        }
        counts = ", ".join(
            f"{count:,} of {len(splits.named()[name]):,} in {name}"
            for name, count in bare.items()
            if count
        )
        without = "every example has a label"
        if counts:
            without = f"examples without any label: {counts}"
        message = f"{len(self.labels)} labels in train, {mean:.2f} per example; {without}."
        return Finding("ok", "labels", message)

    def classes(self, label: Label) -> list[str]:
        """The names of a label set."""
        return list(label)

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """A unit per example with a 0 or 1 for each label as target."""
        units = encode_examples(examples, tokeniser, length)
        for unit, example in zip(units, examples, strict=True):
            if example.label is not None:
                unit.targets = self._marked([example])
        return units

    def _marked(self, examples: Sequence[Example]) -> NDArray[np.int64]:
        """An array (examples, labels) of 0 and 1; unknown names have no column."""
        sets = [set(example.label) for example in examples]
        return np.array(
            [[label in names for label in self.labels] for names in sets], np.int64
        ).reshape(len(sets), -1)

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh head with one output per label."""
        from tasklm.tasks.heads.layers import TokenHead

        return TokenHead(width, len(self.labels), dropout, normed)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The negative log-likelihood of the label sets, the labels taken as independent, summed
        over examples.
        """
        from tasklm.tasks.heads.losses import binary_cross_entropy

        return binary_cross_entropy(outputs, targets)

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """Binary cross-entropy against the teachers' probabilities, summed over examples."""
        from tasklm.tasks.heads.soft_losses import soft_binary_cross_entropy

        return soft_binary_cross_entropy(outputs, taught, targets[..., 0] != NONE)

    def lesson(self, outputs: Floats) -> Floats:
        """The logits themselves."""
        return np.copy(outputs)

    def count(self, targets: Tensor) -> int:
        """The number of examples."""
        return int((targets[..., 0] != NONE).sum())

    def consistency(self) -> TextConsistency:
        """The labels of a text and of its halves."""
        from tasklm.tasks.consistency.texts import TextConsistency

        return TextConsistency(len(self.labels), independent=True)

    def keep(self, outputs: Floats) -> Any:
        """The probabilities of the labels."""
        return _odds(np.asarray(outputs[0], np.float64))

    def tuned(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> Multilabel:
        """The task with the threshold for each label that has the best F1 on these examples."""
        gold = self._marked(examples).astype(bool)
        probabilities = np.array(predictions).reshape(gold.shape)
        return Multilabel(
            self.labels,
            [best_threshold(gold[:, i], probabilities[:, i]) for i in range(len(self.labels))],
        )

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """Answers: {"labels": those at or above their thresholds, "probabilities": of all}."""
        answers = []
        for row in predictions:
            chosen = [
                label
                for label, value, least in zip(self.labels, row, self.thresholds, strict=True)
                if value >= least
            ]
            answers.append(
                {
                    "labels": chosen,
                    "probabilities": dict(zip(self.labels, map(float, row), strict=True)),
                }
            )
        return answers

    def label_of(self, answer: Answer) -> Label:
        """The sorted names."""
        return tuple(sorted(answer["labels"]))

    def rivals(self, answer: Answer) -> Rivals:
        return nearest_threshold(answer["probabilities"], self.thresholds)

    def metric(self, name: str) -> Metric:
        """The named metric of label sets."""
        return label_set_metric(name, self.labels)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Wide | None = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """The most frequent label set, and a linear model per label over TF-IDF, with thresholds
        chosen like ours.
        """
        counts = Counter(tuple(example.label) for example in train)
        usual = min(counts, key=lambda names: (-counts[names], names))
        frequent = {name: [usual] * len(part) for name, part in held.items()}
        return {
            "most frequent labels": frequent,
            "TF-IDF + linear": labels_by(wide, self, held) or frequent,
        }

    def _chosen(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        metric: Metric,
        vectors: WordVectors | None,
    ) -> tuple[Trainer, Targets, Setting] | None:
        """The trainer of linear models, their targets, and the setting that is best on dev."""
        trainer = Trainer.of(train, outputs=len(self.labels), vectors=vectors)
        if not trainer.parts:
            return None

        def judge(examples: Sequence[Example], decisions: Floats) -> float:
            gold = [example.label for example in examples]
            return score(metric, gold, self._tuned_by(examples, decisions)._named(decisions))

        targets = self._marked(trainer.train).astype(bool)
        setting, _ = trainer.choose(targets, (None,), dev, judge)
        return trainer, targets, setting

    def _tuned_by(self, examples: Sequence[Example], decisions: Floats) -> Multilabel:
        return Multilabel(self.labels).tuned(examples, [], list(_odds(decisions)))

    def _named(self, decisions: Floats) -> list[Label]:
        return [self.label_of(answer) for answer in self.answers([], [], list(_odds(decisions)))]

    def fit_wide(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        metric: str,
        vectors: WordVectors | None = None,
    ) -> FittedWide | None:
        """Fits a linear model per label; None if the texts contain nothing to count."""
        chosen = self._chosen(train, dev, self.metric(metric), vectors)
        if chosen is None:
            return None
        trainer, targets, setting = chosen
        return fit_labels(trainer, targets, setting, train)


def _odds(outputs: Floats) -> Floats:
    """The probabilities of outputs."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * outputs)), np.float64)


def best_threshold(gold: NDArray[np.bool_], probabilities: Floats) -> float:
    """The threshold with the best F1: 0.5 if it is as good as any, else the middle between two
    probabilities, nearest to 0.5.
    """
    if not gold.any():
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    values = probabilities[order]
    last = np.append(values[1:] < values[:-1], True)  # equal probabilities are on the same side
    right = np.cumsum(gold[order])[last]
    f1 = 2 * right / (np.flatnonzero(last) + 1 + gold.sum())
    edges = values[last]
    middles = (edges + np.append(edges[1:], 0.0)) / 2
    chosen = probabilities >= 0.5
    if 2 * (gold & chosen).sum() / (chosen.sum() + gold.sum()) >= f1.max():
        return 0.5
    equal = middles[f1 == f1.max()]
    return float(equal[np.argmin(np.abs(equal - 0.5))])
