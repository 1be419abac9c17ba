"""Linear support vector machines by Newton's method: without scikit-learn and Numba, whose imports
take longer than most fits.

"A Modified Finite Newton Method for Fast Solution of Large Scale Linear SVMs" (Keerthi and DeCoste,
JMLR 2005), for squared hinge loss with an offset that is a weight as any other, as in liblinear,
whose optimum is the same. Weights are sums of examples, each times its share, as in "Training a
Support Vector Machine in the Primal" (Chapelle, Neural Computation 2007): at the optimum the share
of an example with the sign y is 2 C y max(0, 1 - y f(x)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats

MOST_STEPS, MOST_PRODUCTS = 100, 1000  # of Newton's method, and in each of its steps
ROUGH = 0.1  # share of the error that a step leaves, at first
SHORT = 0.1  # of the way that a step wants to go: so rough a one did not know the way
FREQUENT, MOST_FREQUENT = 0.05, 64  # share of examples that have a column; how many of those
_SEARCHES = 50  # of the best point on a line, at most: it is found after a few
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Products:
    """The products of examples with one another, of which a fit needs no more.

    A column that one example alone has adds to its product with itself.
    """

    shared: Any  # the columns that several examples have, in single precision: half the memory
    alone: Floats  # the squares of the others in each example
    lengths: Floats  # the product of each example with itself
    frequent: Floats  # the most frequent columns and that of the offset: the largest products

    @classmethod
    def of(cls, matrix: Any) -> Products:
        """Those of the rows of a sparse matrix."""
        count = np.bincount(matrix.indices, minlength=matrix.shape[1])
        squared = matrix.multiply(matrix).tocsr()
        often = np.argsort(-count, kind="stable")[:MOST_FREQUENT]
        often = often[count[often] > FREQUENT * matrix.shape[0]]
        dense = np.hstack([matrix[:, often].toarray(), np.ones((matrix.shape[0], 1))])
        lengths = np.asarray(squared.sum(1), np.float64).ravel() + 1.0
        alone = np.asarray(squared @ (count == 1), np.float64)
        return cls(matrix[:, count > 1].astype(np.float32), alone, lengths, dense)

    def some(self, rows: Rows) -> Products:
        """Those of some examples."""
        return Products(
            self.shared[rows], self.alone[rows], self.lengths[rows], self.frequent[rows]
        )

    def decided(self, shares: Floats) -> Floats:
        """What the sum of the examples, each times its share, decides about each of them."""
        own = self.shared @ (self.shared.T @ shares.astype(np.float32))
        return np.asarray(own + self.alone * shares + shares.sum(), np.float64)


@dataclass(frozen=True)
class Machine:
    """A class against the rest: the examples, their signs, and how far each margin falls short of 1
    for each unit of its share.
    """

    products: Products
    signs: Floats
    slack: Floats

    @classmethod
    def of(cls, products: Products, positive: NDArray[np.bool_], costs: Floats) -> Machine:
        """The machine of a class; `costs` is C of each example."""
        return cls(products, np.where(positive, 1.0, -1.0), 0.5 / costs)

    def fit(self, tolerance: float) -> Floats:
        """The share of each example, with its sign; no margin is further than `tolerance` from
        where it belongs.
        """
        shares, decisions = np.zeros_like(self.signs), np.zeros_like(self.signs)
        rough = ROUGH
        for _ in range(MOST_STEPS):
            gaps = 1.0 - self.signs * decisions
            errors = self.signs * np.maximum(gaps, 0.0) - self.slack * shares
            wrong = float(np.abs(errors).max(initial=0.0))
            if wrong <= tolerance:
                break
            step = np.where(gaps > 0.0, 0.0, -shares)  # those outside the margin have none
            if step.any():
                errors -= self.products.decided(step)
            inside = np.flatnonzero(gaps > 0.0)
            step[inside] = self._step(inside, errors, rough * wrong)
            moved = self.products.decided(step)
            length = self._length(shares, step, gaps, moved)
            shares = shares + length * step
            decisions = decisions + length * moved
            rough = ROUGH if length > SHORT else ROUGH * rough
        return shares

    def _step(self, inside: Rows, errors: Floats, enough: float) -> Floats:
        """From the shares of the examples inside the margin to about where the loss is least if no
        other comes inside; by conjugate gradients.
        """
        products, slack = self.products.some(inside), self.slack[inside]
        eased_by = _Easing.of(products, slack)
        step, left = np.zeros(len(inside)), errors[inside]
        way = eased_by.apply(left)
        size = float(left @ way)
        for _ in range(MOST_PRODUCTS):
            if np.abs(left).max(initial=0.0) <= enough:
                break
            curved = products.decided(way) + slack * way
            length = size / float(way @ curved)
            step += length * way
            left = left - length * curved
            eased = eased_by.apply(left)
            before, size = size, float(left @ eased)
            way = eased + (size / before) * way
        return step

    def _length(self, shares: Floats, step: Floats, gaps: Floats, moved: Floats) -> float:
        """How far along a step the loss is least, by Newton's method on its slope, which is made of
        straight pieces.
        """
        across, along = float(shares @ moved), float(step @ moved)
        signed, length = self.signs * moved, 1.0
        low, high = 0.0, np.inf
        for _ in range(_SEARCHES):
            left = gaps - length * signed
            own = np.where(left > 0.0, signed / self.slack, 0.0)
            slope = across + length * along - float(own @ left)
            low, high = (length, high) if slope < 0.0 else (low, length)
            change = -slope / (along + float(own @ signed))
            if abs(change) <= 1e-6 * length:
                break
            length += change
            if not low < length < high:
                length = 2.0 * low if high == np.inf else 0.5 * (low + high)
        return length


@dataclass(frozen=True)
class _Easing:
    """The inverse of a matrix that is close to that of all products: a diagonal, and the frequent
    columns (Woodbury's identity). Conjugate gradients need few steps with it.
    """

    diagonal: Floats
    columns: Floats
    inner: Floats

    @classmethod
    def of(cls, products: Products, slack: Floats) -> _Easing:
        columns = products.frequent
        diagonal = products.lengths - (columns * columns).sum(1) + slack
        over = columns / diagonal[:, None]
        return cls(diagonal, over, np.linalg.inv(np.eye(columns.shape[1]) + columns.T @ over))

    def apply(self, left: Floats) -> Floats:
        """The inverse times a vector."""
        return np.asarray(
            left / self.diagonal - self.columns @ (self.inner @ (self.columns.T @ left))
        )
