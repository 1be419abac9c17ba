"""The head of a model with outputs for new classes.

The rows of old classes are kept bit for bit. A row of a new class begins as the mean of all others:
it says of a text what classes say on average, until its examples are learnt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RecipeError

OUT = re.compile(r"head\.out\.(weight|bias)")  # of the heads that have a row for each class


def widened(
    weights: Mapping[str, NDArray[Any]], before: Sequence[str], after: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """The weights of a model of other classes; raises RecipeError for a head that has no row for
    each class, such as those of trees and of sequences of tags.
    """
    if list(before) == list(after):
        return dict(weights)
    names = [name for name in weights if OUT.fullmatch(name)]
    others = [name for name in weights if name.startswith("head.") and name not in names]
    rows = {len(weights[name]) for name in names}
    searching = [name for name in others if not name.startswith(("head.dense.", "head.norm."))]
    if rows != {len(before)} or searching:
        raise RecipeError(
            [
                "the head of this model cannot take new classes (it searches for trees or for "
                "sequences of tags); train again with all examples: tasklm fit …"
            ]
        )
    place = {label: number for number, label in enumerate(before)}
    chosen = np.array([place.get(label, -1) for label in after])
    return {**weights, **{name: _rows(weights[name], chosen) for name in names}}


def _rows(own: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[Any]:
    mean = own.mean(0, dtype=np.float64, keepdims=True).astype(own.dtype)
    return np.ascontiguousarray(np.concatenate([own, mean])[chosen])
