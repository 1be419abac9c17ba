"""What needs no language model: the majority class, and TF-IDF with logistic regression, chosen on dev only.

Words and word pairs carry topics; character runs inside words carry morphology and spelling, and work for any
language. The linear baseline sees the same training examples as the model and the same dev examples choose its
strength, so that a model that does not beat it has not earned its cost.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasklm.corpus.processes import processes_for
from tasklm.errors import DataError
from tasklm.tasks.base import Metric, score
from tasklm.tasks.examples import Example
from tasklm.tasks.tfidf import features

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # C: the larger, the less the weights are held down
_WORTH_A_PROCESS = 1 << 23  # entries of the matrix times fits: fewer are done before a process has started


@dataclass(frozen=True)
class LinearBaseline:
    """What TF-IDF + logistic regression predicts, and how it was chosen; `c` is None where majority stood in."""

    dev: list[Any]
    test: list[Any]
    c: float | None
    class_weight: str | None
    dev_score: float | None


def majority(train: Sequence[Example], texts: Sequence[Any]) -> list[Any]:
    """Returns the most frequent training label once per text; of equally frequent ones the first by name."""
    if not train:
        raise DataError("there are no training examples", remedy="Give a training file with labelled examples.")
    counts = Counter(example.label for example in train)
    label = min(counts, key=lambda name: (-counts[name], str(name)))
    return [label] * len(texts)


def tfidf_linear(train: Sequence[Example], dev: Sequence[Example], test: Sequence[Example], metric: Metric) -> LinearBaseline:
    """Returns the predictions for dev and test of the C and class weight that score best on dev, and which they are.

    Where there is nothing to learn from (one class, or no text with a word or two letters) it is the majority
    baseline. Without dev examples C is 1 and classes weigh as they occur.
    """
    from scipy.sparse import vstack  # here and below: these packages cost a second, which reading and training need not spend

    usual = LinearBaseline(majority(train, dev), majority(train, test), None, None, None)
    labels = sorted({example.label for example in (*train, *dev)}, key=str)
    number = {label: position for position, label in enumerate(labels)}
    train_classes = np.array([number[example.label] for example in train])
    found = features(train, dev, test)
    if found is None or len(set(train_classes.tolist())) < 2:
        return usual
    of_train, of_dev, of_test = _without_multiples(*found)
    grid = _grid(train_classes) if len(dev) else [(None, 1.0)]
    present = np.unique(train_classes)
    predicted = [
        [labels[position] for position in numbers]
        for numbers in _predictions(of_train, train_classes, present, vstack([of_dev, of_test], format="csr"), grid)
    ]
    gold = [example.label for example in dev]
    scores = [score(metric, gold, names[: len(dev)]) for names in predicted] if len(dev) else []
    best = scores.index(max(scores)) if scores else 0
    class_weight, c = grid[best]
    reached = scores[best] if scores else None
    return LinearBaseline(predicted[best][: len(dev)], predicted[best][len(dev) :], c, class_weight, reached)


def _grid(train_classes: Any) -> list[tuple[str | None, float]]:
    counts = np.bincount(train_classes)
    counts = counts[counts > 0]
    even = counts.max() == counts.min()  # then balanced weights are all 1: the same fits again
    return [(weight, c) for weight in ((None,) if even else (None, "balanced")) for c in STRENGTHS]


def _predictions(matrix: Any, classes: Any, present: Any, others: Any, grid: Sequence[tuple[str | None, float]]) -> list[Any]:
    """Returns what each point of the grid predicts for the other examples; all its fits are shared among processes.

    Processes, not threads: liblinear draws its order of examples from a state that all threads of a process share.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    told_apart = present[1:] if len(present) == 2 else present
    fits = [(c, weight, one) for weight, c in grid for one in told_apart]
    slow_first = sorted(range(len(fits)), key=lambda place: -fits[place][0])
    processes = processes_for(matrix.nnz * len(fits), _WORTH_A_PROCESS)
    jobs = (delayed(decide)(matrix, classes == fits[place][2], *fits[place][:2], others) for place in slow_first)
    found = dict(zip(slow_first, Parallel(processes, mmap_mode="c")(jobs), strict=True))
    decisions = np.stack([found[place] for place in range(len(fits))], axis=1).reshape(others.shape[0], len(grid), len(told_apart))
    if len(present) == 2:
        return [present[(decided[:, 0] > 0).astype(np.int64)] for decided in decisions.swapaxes(0, 1)]
    return [present[decided.argmax(axis=1)] for decided in decisions.swapaxes(0, 1)]


def decide(matrix: Any, positive: Any, c: float, class_weight: str | None, others: Any) -> Any:
    """Returns by how much the other examples are rather of the class than of the rest."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    # One against the rest with the dual solver: with far more features than examples it is several times faster than
    # the joint softmax fit, and on ACL-ARC it scores the same on dev (0.735 both) and on test (0.68 against 0.67).
    # A tolerance of 0.01 (liblinear's own is 0.1) predicts the same there as 0.0001 and nearly halves the time of C = 100.
    one = LogisticRegression(
        C=c,
        class_weight=class_weight,
        solver="liblinear",
        dual=True,
        tol=0.01,
        max_iter=1000,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one.fit(matrix, positive)
    return one.decision_function(others) if others.shape[0] else np.empty(0)


def _without_multiples(of_train: Any, *others: Any) -> list[Any]:
    """Returns the matrices with one feature in place of all whose training columns are multiples of one another.

    The character runs of a rare word occur together, so they are many. A rotation turns such columns into one that is as long
    as they are together: no product of two examples changes, so the fits and what they predict stay as they are.
    """
    from scipy.sparse import csr_matrix

    lengths = np.sqrt(np.asarray(of_train.multiply(of_train).sum(axis=0)).ravel())
    drawn = np.random.default_rng(0).standard_normal((of_train.shape[0], 2))
    seen = np.where(lengths > 0, lengths, 1.0)  # a pair's word may stand in one of the two texts of train and in the other of dev
    directions = (of_train.T @ (drawn[:, 0] + 1j * drawn[:, 1])) / seen  # the same for multiples, but for rounding
    _, group = np.unique(np.round(directions, 11), return_inverse=True)
    together = np.sqrt(np.bincount(group, lengths**2))
    together[together == 0] = 1.0  # columns that train does not have weigh nothing in any fit, and are left out
    rotation = csr_matrix((lengths / together[group], (np.arange(len(group)), group)), shape=(len(group), len(together)))
    merged = [(matrix @ rotation).tocsr() for matrix in (of_train, *others)]
    for matrix in merged:
        matrix.sort_indices()
    return merged
