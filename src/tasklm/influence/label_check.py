"""Training examples that are probably mislabelled, for review.

A model that was trained on an example has learnt its label, right or wrong. So the examples are
split into parts, and each part is judged by a linear head fitted to the other parts, on fixed
features h that do not depend on labels. The gradient of an example's loss with respect to the head
is (p − y) hᵀ, and where λ/2 · |W|² + Σ_j loss_j is smallest, λ W = −Σ_j (p_j − y_j) h_jᵀ. The
logits of a held-out example are therefore sums of products of gradients over the examples of the
other parts, one for each class (as in *Representer Point Selection*, arXiv 1811.09720):

    z_c = −1/λ Σ_j (p_j − y_j)_c × h_j·h

and the strength of the evidence against its label is how much more they support all classes than
this one: ln Σ_c exp(z_c) − z_label.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, diags, hstack
from scipy.special import logsumexp, softmax

from tasklm.tasks.examples import Example

FOLDS = 5
STRENGTHS = (3.0, 1.0, 0.3)  # λ
LONGEST = 3  # tokens of a run


@dataclass(frozen=True)
class Suspect:
    """A training example that is probably mislabelled."""

    rank: int  # 1 = most suspicious
    file: str
    line: int
    text: str
    label: str
    suggested: str
    score: float  # strength of the evidence against the label
    self_influence: float  # squared length of the example's own gradient


@dataclass(frozen=True)
class Judged:
    """The held-out predictions for every example."""

    logits: np.ndarray  # (examples, classes)
    strength: float  # λ
    loss: float  # mean over the examples

    @property
    def probabilities(self) -> np.ndarray:
        """The probabilities of the classes."""
        return np.asarray(softmax(self.logits, axis=1))


def fit_head(
    features: csr_matrix, targets: np.ndarray, classes: int, strength: float
) -> np.ndarray:
    """The weights (classes, features) where strength/2 · |W|² + Σ cross-entropy is smallest."""
    wanted, each = np.eye(classes)[targets], np.arange(len(targets))
    shape, turned = (features.shape[1], classes), csr_matrix(features.T)

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        logits = np.asarray(features @ weights)
        losses = spoken_against(logits, targets)
        errors = np.exp(logits - (losses + logits[each, targets])[:, None]) - wanted
        total = float(losses.sum()) + strength / 2 * float(flat @ flat)
        gradient = np.asarray(turned @ errors) + strength * weights
        return total, gradient.ravel()

    fit: Any = minimize(
        value,
        np.zeros(shape[0] * shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 200, "ftol": 1e-7},
    )
    return np.asarray(fit.x.reshape(shape).T)


def parts_of(targets: np.ndarray, folds: int) -> np.ndarray:
    """The part of every example: each class is spread evenly over the parts, in random order."""
    order = np.random.default_rng(0).permutation(len(targets))
    order = order[np.argsort(targets[order], kind="stable")]
    parts = np.empty(len(targets), np.int64)
    parts[order] = np.arange(len(targets)) % folds
    return parts


def held_out(features: csr_matrix, targets: np.ndarray, classes: int, folds: int = FOLDS) -> Judged:
    """The predictions of heads fitted to the other parts, at the strength with the lowest loss."""
    parts, trials = parts_of(targets, folds), []
    for strength in STRENGTHS:
        logits = np.zeros((len(targets), classes))
        for part in range(folds):
            out = parts == part
            head = fit_head(features[~out], targets[~out], classes, strength)
            logits[out] = features[out] @ head.T
        trials.append(Judged(logits, strength, float(spoken_against(logits, targets).mean())))
    return min(trials, key=lambda judged: judged.loss)


def spoken_against(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """ln Σ_c exp(z_c) − z_label of every example, which is also its held-out loss."""
    return np.asarray(logsumexp(logits, axis=1) - logits[np.arange(len(targets)), targets])


def self_influences(
    features: csr_matrix, probabilities: np.ndarray, targets: np.ndarray
) -> np.ndarray:
    """The squared length |p − y|² · |h|² of every example's gradient."""
    errors = probabilities - np.eye(probabilities.shape[1])[targets]
    return np.asarray((errors**2).sum(1) * np.asarray(features.multiply(features).sum(1)).ravel())


def features_of(rows: Sequence[Sequence[int]]) -> csr_matrix:
    """The features of every example: its tokens, its runs of two and three tokens, and a 1."""
    runs = [weighted(runs_of_tokens(rows, size)) for size in range(1, LONGEST + 1)]
    return csr_matrix(hstack([*runs, np.ones((len(rows), 1))]))


def runs_of_tokens(rows: Sequence[Sequence[int]], size: int) -> csr_matrix:
    """The counts of runs of `size` tokens in every row; runs that occur in one row only are left
    out.
    """
    tokens = np.concatenate([np.asarray(row, np.uint64) for row in rows])
    of_row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    count = max(0, len(tokens) - size + 1)
    keys = np.zeros(count, np.uint64)
    for place in range(size):
        keys = keys * np.uint64(0x9E3779B97F4A7C15) + tokens[place : place + count]
    # the run does not extend into the next row
    inside = of_row[:count] == of_row[size - 1 : size - 1 + count]
    _, columns = np.unique(keys[inside], return_inverse=True)
    counts = csr_matrix(
        (np.ones(len(columns)), (of_row[:count][inside], columns)),
        shape=(len(rows), int(columns.max(initial=-1)) + 1),
    )
    counts.sum_duplicates()
    rows_having = np.bincount(counts.indices, minlength=counts.shape[1])
    return csr_matrix(counts[:, rows_having > 1])


def weighted(counts: csr_matrix) -> csr_matrix:
    """Rows of length 1 in which rare columns weigh more.

    The weights are (1 + ln count) · (1 + ln((1 + rows) / (1 + rows that have it))).
    """
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = 1 + np.log((1 + counts.shape[0]) / (1 + having))
    counts.data = (1 + np.log(counts.data)) * rarity[counts.indices]
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(1)).ravel())
    return csr_matrix(diags(1 / np.where(lengths > 0, lengths, 1)) @ counts)


def suspects_of(
    train: Sequence[Example], labels: Sequence[str], features: csr_matrix
) -> list[Suspect]:
    """The examples for which the others support another label, the most suspicious first."""
    number = {label: i for i, label in enumerate(labels)}
    targets = np.array([number[example.label] for example in train])
    judged = held_out(features, targets, len(labels))
    scores = spoken_against(judged.logits, targets)
    own = self_influences(features, judged.probabilities, targets)
    heard = judged.logits.argmax(1)
    order = np.argsort(-scores, kind="stable")
    order = order[heard[order] != targets[order]]
    return [
        Suspect(
            rank=rank,
            file=train[i].file,
            line=train[i].line,
            text=train[i].text,
            label=labels[targets[i]],
            suggested=labels[int(heard[i])],
            score=float(scores[i]),
            self_influence=float(own[i]),
        )
        for rank, i in enumerate(order.tolist(), 1)
    ]


def as_csv(suspects: Sequence[Suspect]) -> str:
    """The suspects as a CSV table."""
    out = io.StringIO()
    table = csv.DictWriter(out, [field.name for field in fields(Suspect)], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(one) for one in suspects)
    return out.getvalue()
