"""The confusion matrix and the scores of each class that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class, with its numbers of gold and predicted examples."""

    precision: float
    recall: float
    f1: float
    gold: int
    predicted: int


def confusion_matrix(gold: Array, predicted: Array, classes: int) -> NDArray[np.int64]:
    """Counts of examples by gold class (row) and predicted class (column)."""
    for name, array in (("gold", gold), ("predicted", predicted)):
        if array.shape != gold.shape or (
            len(array) and (array.min() < 0 or array.max() >= classes)
        ):
            raise ValueError(
                f"{name} must be as many whole numbers from 0 to {classes - 1} as gold has"
            )
    pairs = gold.astype(np.int64) * classes + predicted.astype(np.int64)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def per_class(matrix: Array) -> list[ClassScore]:
    """The scores of each class of a confusion matrix; a ratio without examples is 0."""
    matrix = np.asarray(matrix)
    scores = []
    for right, gold, predicted in zip(matrix.diagonal(), matrix.sum(1), matrix.sum(0), strict=True):
        scores.append(
            ClassScore(
                precision=float(right / max(1, predicted)),
                recall=float(right / max(1, gold)),
                f1=float(2 * right / max(1, gold + predicted)),
                gold=int(gold),
                predicted=int(predicted),
            )
        )
    return scores
