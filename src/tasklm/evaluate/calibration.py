"""Calibration: how reliable probabilities are, and one temperature that corrects them.

Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks" (arXiv 1706.04599):
reliability diagrams and the expected calibration error (section 2), temperature scaling (section
4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Answer

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

BINS = 10  # of equal width, over the probability of the likeliest class
# temperatures: the best is 0 if dev has no mistake, infinite if the model knows nothing
COLDEST, HOTTEST = 0.01, 100.0
SMALLEST = float(np.finfo(np.float32).tiny)  # probabilities that are written as 0 were below this
ENOUGH = 1e-12  # relative tolerance of the best 1/T


def calibration(
    labels: Sequence[str],
    gold: Mapping[str, Sequence[str]],
    answers: Mapping[str, Sequence[Answer]],
) -> dict[str, Any]:
    """The temperature fitted on dev, and the reliability before and after it on test, or on dev.

    `gold` and `answers` hold the classes and the answers of each split; answers have the
    probabilities of all `labels`.
    """
    split = "test" if answers.get("test") else "dev"
    temperature = best_temperature(*_arrays(labels, gold["dev"], answers["dev"]))
    probabilities, right = _arrays(labels, gold[split], answers[split])
    return {
        "split": split,
        "temperature": temperature,
        "before": reliability(probabilities, right),
        "after": reliability(scaled(probabilities, temperature), right),
    }


def best_temperature(probabilities: Floats, right: Numbers) -> float:
    """The temperature T at which softmax(log p / T) makes the `right` classes likeliest.

    The likelihood is convex in β = 1/T and its slope Σ (E_β[log p] − log p_right) rises with β. The
    zero of the slope is searched between COLDEST and HOTTEST; a model without a mistake on dev
    gets COLDEST.
    """
    from scipy.optimize import brentq  # imported here so that predicting does not wait for it

    logits = _logits(probabilities)
    of_right = logits[np.arange(len(right)), right]

    def slope(beta: float) -> float:
        return float(((_softmax(beta * logits) * logits).sum(1) - of_right).sum())

    low, high = 1.0 / HOTTEST, 1.0 / COLDEST
    if slope(low) >= 0:
        return HOTTEST
    if slope(high) <= 0:
        return COLDEST
    return 1.0 / float(brentq(slope, low, high, rtol=ENOUGH))


def scaled(probabilities: Floats, temperature: float) -> Floats:
    """The probabilities at a temperature; the likeliest class stays the same."""
    return _softmax(_logits(probabilities) / temperature)


def reliability(probabilities: Floats, right: Numbers) -> dict[str, Any]:
    """Calibration error "ece", mean "nll" and "bins" (not empty): confidence, accuracy, count."""
    sure, hits = probabilities.max(1), probabilities.argmax(1) == right
    # bin m holds (m / 10, (m + 1) / 10]
    number = np.clip(np.ceil(sure * BINS).astype(np.int64) - 1, 0, BINS - 1)
    bins = []
    for one in range(BINS):
        own = number == one
        if own.any():
            bins.append(
                {
                    "confidence": float(sure[own].mean()),
                    "accuracy": float(hits[own].mean()),
                    "count": int(own.sum()),
                }
            )
    gaps = [one["count"] * abs(one["accuracy"] - one["confidence"]) for one in bins]
    ece = sum(gaps) / len(right)
    nll = -_logits(probabilities)[np.arange(len(right)), right].mean()
    return {"ece": float(ece), "nll": float(nll), "bins": bins}


def _arrays(
    labels: Sequence[str], gold: Sequence[str], answers: Sequence[Answer]
) -> tuple[Floats, Numbers]:
    """The probabilities (examples, classes), each row of sum 1, and the number of right classes."""
    rows = np.array(
        [[answer["probabilities"][label] for label in labels] for answer in answers], np.float64
    )
    place = {label: number for number, label in enumerate(labels)}
    return rows / rows.sum(1, keepdims=True), np.array([place[label] for label in gold], np.int64)


def _logits(probabilities: Floats) -> Floats:
    logits: Floats = np.log(np.maximum(probabilities, SMALLEST))
    return logits


def _softmax(logits: Floats) -> Floats:
    probabilities: Floats = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    return probabilities
