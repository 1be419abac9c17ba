"""One text or a pair → a number: a sigmoid, and squared error over labels scaled to 0…1 (as BAM has
STS-B, arXiv 1907.04829).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import Intervals
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Elsewhere,
    Floats,
    Label,
    LabelsAlone,
    Metric,
    Tokeniser,
    Unit,
    Untuned,
    score,
)
from tasklm.tasks.baselines.linear import Linear, Setting, Trainer, best_of, matrix_of, thinned
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_fitting import FittedWide, fit_score
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.metrics import number_metric
from tasklm.tasks.readers.texts import LABEL_NAMES, encode_examples, read_text_examples
from tasklm.tasks.rivals import Unranked
from tasklm.tasks.saved import number_in

if TYPE_CHECKING:
    from torch import Tensor, nn

SCORE_NAMES = (
    "score",
    "similarity",
    "rating",
    "value",
    "relatedness_score",
    "similarity_score",
    *LABEL_NAMES,
)
# of ridge: the larger, the less free
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
USUAL = 3.0


@TASKS.register("regress")
class Regress(LabelsAlone, Unranked, Untuned):
    """A score between the smallest and the largest label of train."""

    kind: ClassVar[str] = "regress"
    classifies, pairs, cased = False, True, False
    reads_vectors = True
    sets, setless = Intervals(), ""
    unsmoothed = incomparable = "scores are numbers, not classes"
    unranked = "a score does not say how sure it is"
    labels_alone = "a score is one number, without a distribution to agree with"
    metrics: tuple[str, ...] = ("spearman", "pearson")
    packs: bool = True
    wide_width = 1

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = float(low), float(high)
        self.labels: list[str] = []
        self.together = 1

    @property
    def elsewhere(self) -> Elsewhere:
        """The equivalent in other programs; their "regression" takes the logit itself as the score,
        without our sigmoid.
        """
        meaning = f"The score is {self.low:g} + {self.high - self.low:g} · sigmoid(logit)."
        return Elsewhere("text-classification", "ForSequenceClassification", meaning)

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The examples of a table and notes; a label that is not a number raises a DataError with
        its line.
        """
        return read_text_examples(path, data, labelled, number, SCORE_NAMES)

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Regress:
        """The task with the range of the training labels."""
        low = min(train, key=lambda example: float(example.label))
        high = max(train, key=lambda example: float(example.label))
        if not math.isfinite(high.label - low.label):
            problem = (
                f"the labels from {low.label:g} to {high.label:g} are too far apart to compute with"
            )
            raise DataError(
                problem,
                file=high.file,
                line=high.line,
                remedy="Scale them, or delete the rows that are wrong.",
            )
        return cls(low.label, high.label)

    def example_of(self, text: str) -> Example:
        """The example of a single text."""
        return Example((text,), None)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Regress:
        """The task that `to_dict` described."""
        low, high = number_in(values, "low"), number_in(values, "high")
        if low > high or not math.isfinite(high - low):
            raise ValueError(f"the task's scores from {low:g} to {high:g} are not a range")
        return cls(low, high)

    def to_dict(self) -> dict[str, Any]:
        """The kind and the range of the labels."""
        return {"kind": self.kind, "low": self.low, "high": self.high}

    def audit(self, splits: Splits) -> list[Finding]:
        """Whether labels vary, and which of dev and test lie outside the range of train."""
        if self.low == self.high:
            message = (
                f"all {len(splits.train):,} training labels are "
                f"{self.low:g}. Add examples of other scores, or name another column."
            )
            return [Finding("error", "labels", message)]
        labels = np.array([example.label for example in splits.train])
        message = (
            f"training labels from {self.low:g} to {self.high:g}, "
            f"mean {labels.mean():.4g}, standard deviation {labels.std():.4g}."
        )
        findings = [Finding("ok", "labels", message)]
        for name in ("dev", "test"):
            part = splits.named().get(name, [])
            outside = [example for example in part if not self.low <= example.label <= self.high]
            if outside:
                message = (
                    f"{len(outside):,} of the {len(part):,} labels of {name} lie outside "
                    f"those of train, {self.low:g} to {self.high:g}. "
                    "The model cannot predict such scores; add training examples that have them."
                )
                examples = tuple(
                    f"{example.file}, line {example.line}: {example.label:g}"
                    for example in outside[:3]
                )
                brief = (
                    f"{len(outside):,} labels of {name} lie "
                    f"outside those of train: add such training examples"
                )
                findings.append(
                    Finding("warning", "labels outside the range", message, examples, brief)
                )
        return findings

    def classes(self, label: Label) -> list[str]:
        """Empty: scores are not classes."""
        return []

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """A unit per example; its target is the label, scaled to 0…1."""
        units = encode_examples(examples, tokeniser, length)
        for unit, example in zip(units, examples, strict=True):
            if example.label is not None:
                scaled = (example.label - self.low) / ((self.high - self.low) or 1.0)
                unit.targets = np.array([min(max(scaled, 0.0), 1.0)], np.float32)
        return units

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh head with one output."""
        from tasklm.tasks.heads.layers import TokenHead

        return TokenHead(width, 1, dropout, normed)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The squared errors of the scaled scores, summed over examples."""
        targets = targets.float()
        errors = (outputs.float().squeeze(-1).sigmoid() - targets) ** 2
        return errors.masked_fill(targets == NONE, 0.0).sum()

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The squared errors against the teachers' scaled scores, summed over examples."""
        from tasklm.tasks.heads.soft_losses import soft_squared_error

        return soft_squared_error(outputs.squeeze(-1), taught.squeeze(-1), targets != NONE)

    def lesson(self, outputs: Floats) -> Floats:
        """The logits themselves."""
        return np.copy(outputs)

    def count(self, targets: Tensor) -> int:
        """The number of examples."""
        return int((targets != NONE).sum())

    def keep(self, outputs: Floats) -> Any:
        """The one output of a unit."""
        return float(outputs[0, 0])

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """Answers: {"score": …} in the range of the training labels."""
        return [
            {"score": self.low + (self.high - self.low) * 0.5 * (1 + math.tanh(0.5 * output))}
            for output in predictions
        ]

    def label_of(self, answer: Answer) -> Label:
        """The score."""
        return float(answer["score"])

    def metric(self, name: str) -> Metric:
        """The named correlation."""
        return number_metric(name)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Wide | None = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """Two baselines: the mean of train, and ridge regression over TF-IDF with features and
        strength chosen on dev.
        """
        mean = math.fsum(example.label for example in train) / len(train)
        usual = {name: [mean] * len(part) for name, part in held.items()}
        if wide is None:
            return {"mean": usual, "TF-IDF + ridge": usual}
        # not through the head, whose scores stay within those of train
        return {
            "mean": usual,
            "TF-IDF + ridge": {
                name: wide.decisions(part).ravel().tolist() for name, part in held.items()
            },
        }

    def fit_wide(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        metric: str,
        vectors: WordVectors | None = None,
    ) -> FittedWide | None:
        """Fits ridge regression; None if the texts contain nothing to count."""
        trainer = Trainer.of(train, vectors=vectors)
        if not trainer.parts:
            return None
        wanted, setting = _chosen(trainer, dev, self.metric(metric))
        return fit_score(
            trainer,
            train,
            lambda parts, rows: ridge(parts, wanted[rows], setting),
            (self.low, self.high),
            setting,
        )


def _chosen(trainer: Trainer, dev: Sequence[Example], metric: Metric) -> tuple[Floats, Setting]:
    """The scores of the trainer's examples, and the setting that is best on dev."""
    wanted = np.array([example.label for example in trainer.train])
    some = thinned(dev)
    gold, of_dev = [example.label for example in some], trainer.featuriser.parts(some)

    def judged(settings: Sequence[Setting]) -> list[float]:
        decided = (ridge(trainer.parts, wanted, one).decisions(of_dev) for one in settings)
        return [score(metric, gold, scores.ravel().tolist()) for scores in decided]

    if not some:
        return wanted, Setting(trainer.views[-1], USUAL)
    settings = [Setting(view, USUAL) for view in trainer.views]
    return wanted, best_of(settings, STRENGTHS, judged)[0]


def ridge(parts: Mapping[str, Any], wanted: Floats, setting: Setting) -> Linear:
    """Ridge regression over the blocks of a setting."""
    # imported here because it takes a second that reading and training can save
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=setting.strength, solver="sparse_cg", tol=1e-3)
    model.fit(matrix_of(parts, setting.view), wanted)
    return Linear(setting.view, model.coef_.reshape(-1, 1), np.array([model.intercept_]))


def number(value: Any, column: str, path: Path, line: int) -> float:
    """A cell as a number; anything else raises a DataError."""
    try:
        parsed = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = math.nan
    if not math.isfinite(parsed):
        what = "empty" if value is None or not str(value).strip() else f"{value!r}, not a number"
        remedy = 'Write a number, or delete the row; for classes use data.kind = "classify".'
        raise DataError(
            f"the label in column {column!r} is {what}", file=path, line=line, remedy=remedy
        )
    return parsed
