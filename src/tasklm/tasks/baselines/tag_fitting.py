"""A linear model of the tags of words: softmax regression by AdaGrad, a word at a time.

AdaGrad: "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (Duchi,
Hazan and Singer, JMLR 2011). Features are many and mostly rare, for which a learning rate per
weight is suited; a pass over 200,000 words takes about a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.compiling import compiled_when_called
from tasklm.tasks.baselines.linear import Linear
from tasklm.tasks.baselines.word_features import WordFeatures

EPOCHS = 4
RATE, RATE_OF_OFFSETS = 0.3, 0.01
Numbers = NDArray[np.int64]


def fit_linear(matrix: Any, tags: Numbers, outputs: int, epochs: int = EPOCHS) -> Linear:
    """The model of words (rows of a sparse matrix of ones) and their tags; those below 0 are left
    out.
    """
    weights, squares = np.zeros((matrix.shape[1], outputs)), np.ones((matrix.shape[1], outputs))
    offsets = np.zeros(outputs)
    draw = np.random.default_rng(0)
    rows = np.flatnonzero(tags >= 0)
    for _ in range(epochs):
        _pass(
            matrix.indptr, matrix.indices, tags, weights, squares, offsets, draw.permutation(rows)
        )
    return Linear(WordFeatures.blocks, weights, offsets)


@compiled_when_called
def _pass(
    ends: Any, columns: Any, tags: Numbers, weights: Any, squares: Any, offsets: Any, order: Numbers
) -> None:
    """Goes over the words in an order, and moves the weights of each one's features."""
    outputs = len(offsets)
    errors = np.empty(outputs)
    for row in order:
        first, last = ends[row], ends[row + 1]
        errors[:] = offsets
        for entry in range(first, last):
            for output in range(outputs):
                errors[output] += weights[columns[entry], output]
        errors[:] = np.exp(errors - errors.max())
        errors /= errors.sum()
        errors[tags[row]] -= 1.0
        offsets -= RATE_OF_OFFSETS * errors
        for entry in range(first, last):
            column = columns[entry]
            for output in range(outputs):
                squares[column, output] += errors[output] * errors[output]
                weights[column, output] -= RATE * errors[output] / np.sqrt(squares[column, output])
