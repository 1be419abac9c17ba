"""Linear support vector machines that go on from earlier weights, by dual coordinate descent.

"A Dual Coordinate Descent Method for Large-scale Linear SVM" (Hsieh et al., ICML 2008), for squared
hinge loss, as in liblinear, whose optimum is the same. At an optimum the dual variable of an
example is 2 C max(0, 1 - y f(x)): so weights alone say where the descent of the examples that they
were fitted to had ended, and a few passes take in the new ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.compiling import compiled_when_called
from tasklm.tasks.base import Floats

MOST_PASSES = 1000
Rows = NDArray[np.int64]


def refitted_machine(
    matrix: Any, positive: NDArray[np.bool_], costs: Floats, start: Floats, tolerance: float
) -> tuple[Floats, float]:
    """The weights and the offset of a class against the rest.

    `costs` is C of each example, and `start` its dual variable at the beginning; with a small
    `tolerance` the result does not depend on it.
    """
    signs = np.where(positive, 1.0, -1.0)
    duals = np.ascontiguousarray(np.maximum(start, 0.0), np.float64)
    # the offset is a weight of a feature that every example has, as in liblinear
    weights = np.append(matrix.T @ (duals * signs), float(duals @ signs))
    squares = np.asarray(matrix.multiply(matrix).sum(1), np.float64).ravel() + 1.0
    draw = np.random.default_rng(0)
    for _ in range(MOST_PASSES):
        order = draw.permutation(len(signs))
        rows = (matrix.indptr, matrix.indices, matrix.data, squares)
        low, high = _descend(*rows, signs, costs, duals, weights, order)
        if high - low <= tolerance:
            break
    return weights[:-1], float(weights[-1])


def duals_of(margins: Floats, costs: Floats) -> Floats:
    """The dual variables of examples at an optimum with these margins, y f(x)."""
    return np.asarray(2.0 * costs * np.maximum(0.0, 1.0 - margins))


@compiled_when_called
def _descend(
    ends: Any,
    columns: Any,
    values: Any,
    squares: Any,
    signs: Any,
    costs: Any,
    duals: Any,
    weights: Any,
    order: Rows,
) -> tuple[float, float]:
    """Goes over the examples once; the lowest and the highest projected gradient."""
    low, high = 0.0, 0.0
    last = len(weights) - 1
    for row in order:
        decision = weights[last]
        for entry in range(ends[row], ends[row + 1]):
            decision += weights[columns[entry]] * values[entry]
        slack = 0.5 / costs[row]
        gradient = signs[row] * decision - 1.0 + slack * duals[row]
        if duals[row] > 0.0 or gradient < 0.0:
            low, high = min(low, gradient), max(high, gradient)
            before = duals[row]
            duals[row] = max(before - gradient / (squares[row] + slack), 0.0)
            moved = (duals[row] - before) * signs[row]
            if moved != 0.0:
                weights[last] += moved
                for entry in range(ends[row], ends[row + 1]):
                    weights[columns[entry]] += moved * values[entry]
    return low, high
