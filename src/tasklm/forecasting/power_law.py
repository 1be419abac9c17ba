"""Learning curves as power laws: score = a − b · size^−c (Hestness et al., arXiv 1712.00409).

Several curves of one task (on held-out parts of train, on dev) share b and c, and each has its own
a: parts of the data differ in difficulty, not in the gain from more labels.

For a given c the rest is linear least squares, so that c is searched on a grid. A few noisy points
say little about c; it then stays near USUAL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats

USUAL, SPREAD = 0.5, 0.25  # of c: its usual value, and the spread of its logarithm
NOISE = 0.005  # of a score at the full size: half a point
EXPONENTS = np.geomspace(0.05, 2.0, 371)  # one hundredth apart

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class PowerLaw:
    """Fitted curves; a and b are those of sizes as shares of one that counts as 1."""

    levels: Floats  # (…, curves): a
    slope: Floats  # (…): b, never negative
    exponent: Floats  # (…): c

    def at(self, size: float) -> Floats:
        """The scores of each curve at a size, (…, curves)."""
        return np.asarray(self.levels - (self.slope * size**-self.exponent)[..., None])

    def gain(self, before: float, after: float) -> Floats:
        """The gain in score between two sizes, the same for each curve."""
        return np.asarray(self.slope * (before**-self.exponent - after**-self.exponent))


def fit_power_law(sizes: Floats, curves: Numbers, scores: Floats, noise: float = NOISE) -> PowerLaw:
    """Fits curves to points: sizes and curves, (points,), and scores of replicates, (…, points).

    A point is weighted by the square of its size: scores of small samples scatter more, and their
    settings were chosen for large ones. With `noise` near 0 the points alone decide c.
    """
    flat = np.atleast_2d(scores)
    count = int(curves.max()) + 1
    own = np.eye(count)[curves]
    best = np.full(len(flat), np.inf)
    values = np.zeros((len(flat), count + 2))
    for exponent in EXPONENTS:
        design = np.concatenate([own, -(sizes**-exponent)[:, None]], axis=1)
        solved = (flat * sizes) @ np.linalg.pinv(design * sizes[:, None]).T
        flatten = solved[:, -1] < 0  # more labels do no harm: such a curve is flat
        if flatten.any():
            level = (flat * sizes**2) @ own / (sizes**2 @ own)
            solved[flatten] = np.concatenate([level, np.zeros((len(flat), 1))], axis=1)[flatten]
        errors = (((solved @ design.T - flat) * sizes / noise) ** 2).sum(1)
        errors += (np.log(exponent / USUAL) / SPREAD) ** 2
        better = errors < best
        best[better] = errors[better]
        values[better] = np.concatenate([solved, np.full((len(flat), 1), exponent)], axis=1)[better]
    shaped = values.reshape(*scores.shape[:-1], -1)
    return PowerLaw(shaped[..., :-2], shaped[..., -2], shaped[..., -1])
