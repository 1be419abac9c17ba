"""The scores of a classification: accuracy, micro-F1 and macro-F1, one set at a time or over many resamples at once.

All three follow from three counts per class (right, gold, predicted), so a resample of the test set costs one row
of a matrix product and no second look at the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError

Array = NDArray[Any]
Floats = NDArray[np.float64]
FromCounts = Callable[[Floats, Floats, Floats], Floats]  # right, gold, predicted: (…, classes) → (…)


def _accuracy(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    return np.asarray(right.sum(-1) / gold.sum(-1), dtype=np.float64)


def _micro_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    return np.asarray(2 * right.sum(-1) / (gold.sum(-1) + predicted.sum(-1)), dtype=np.float64)


def _macro_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    size = gold + predicted
    present = size > 0  # as scikit-learn: a class that is neither in gold nor predicted has no F1 to average
    f1 = np.divide(2 * right, size, out=np.zeros_like(size), where=present)
    return np.asarray(f1.sum(-1) / present.sum(-1), dtype=np.float64)


_FROM_COUNTS: dict[str, FromCounts] = {"accuracy": _accuracy, "micro_f1": _micro_f1, "macro_f1": _macro_f1}


def accuracy(gold: Array, predicted: Array, classes: int) -> float:
    """Returns the share of examples whose class is right."""
    return float(_accuracy(*_counts(gold, predicted, classes)))


def micro_f1(gold: Array, predicted: Array, classes: int) -> float:
    """Returns F1 over all decisions together; with one class per example it equals the accuracy."""
    return float(_micro_f1(*_counts(gold, predicted, classes)))


def macro_f1(gold: Array, predicted: Array, classes: int) -> float:
    """Returns the mean F1 of the classes that occur in gold or among the predictions."""
    return float(_macro_f1(*_counts(gold, predicted, classes)))


METRICS: dict[str, Callable[[Array, Array, int], float]] = {
    "accuracy": accuracy,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
}


def score_resamples(metric: str, gold: Array, predicted: Array, classes: int, weights: Array) -> Floats:
    """Returns the metric of each resample; row r of `weights` (resamples × n) says how often r holds each example."""
    gold, predicted = checked(gold, predicted, classes)
    held = np.asarray(weights, dtype=np.float64)
    if held.ndim != 2 or held.shape[1] != len(gold):
        raise ValueError(f"weights have shape {held.shape}, expected (resamples, {len(gold)})")
    one_hot = np.eye(classes)
    in_gold, in_predicted = one_hot[gold], one_hot[predicted]
    return _FROM_COUNTS[metric](held @ (in_gold * in_predicted), held @ in_gold, held @ in_predicted)


def checked(gold: Array, predicted: Array, classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns both arrays as class numbers, or raises when there is nothing to score or a number is no class."""
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise ValueError(f"gold has shape {gold.shape}, predictions {predicted.shape}: expected two lists of one length")
    if not len(gold):
        raise DataError("there are no examples to score", remedy="Give a dev or test file with at least one labelled example.")
    for name, array in (("gold", gold), ("predicted", predicted)):
        if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= classes:
            raise ValueError(f"{name} must be whole numbers from 0 to {classes - 1}")
    return gold.astype(np.int64), predicted.astype(np.int64)


def _counts(gold: Array, predicted: Array, classes: int) -> tuple[Floats, Floats, Floats]:
    gold, predicted = checked(gold, predicted, classes)

    def count(labels: NDArray[np.int64]) -> Floats:
        return np.bincount(labels, minlength=classes).astype(np.float64)

    return count(gold[gold == predicted]), count(gold), count(predicted)
