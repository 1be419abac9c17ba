"""Texts that stand for the others: greedy facility location.

What a choice is worth is, summed over all candidates, the similarity to the chosen or labelled text
that is nearest to them. Each next text is the one that adds most to that. A copy of a chosen text
adds next to nothing, and so does a text like no other. What a text adds only shrinks as others are
chosen, so that most of it need not be computed anew (lazy greedy: Minoux 1978).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasklm.tasks.base import Floats

ROWS = 256  # of similarities that are held at once


@dataclass(frozen=True)
class Chosen:
    """A candidate by its number, and how many candidates are nearer to it than to any other text
    that is chosen or labelled.
    """

    number: int
    stands_for: int


def spread(candidates: Any, labelled: Any, count: int) -> list[Chosen]:
    """At most `count` candidates, the first one first; rows of both matrices have length 1 or 0."""
    turned = candidates.T.tocsc()
    covered = _nearest(candidates, labelled)
    heap = [(-gain, number) for number, gain in enumerate(_gains(candidates, turned, covered))]
    heapq.heapify(heap)
    nearest = np.full(len(covered), -1)
    order: list[int] = []
    while heap and len(order) < count:
        _, number = heapq.heappop(heap)
        similar = _similar(candidates, number)
        gain = -float(np.maximum(similar - covered, 0).sum())
        if heap and (gain, number) > heap[0]:
            heapq.heappush(heap, (gain, number))
            continue
        nearest[similar > covered] = len(order)
        covered = np.maximum(covered, similar)
        order.append(number)
    counts = np.bincount(nearest[nearest >= 0], minlength=len(order))
    for place, number in enumerate(order):
        counts[place] -= nearest[number] == place  # the text itself
    return [Chosen(number, int(own)) for number, own in zip(order, counts, strict=True)]


def _nearest(candidates: Any, labelled: Any) -> Floats:
    """The similarity of each candidate to the labelled text nearest to it."""
    nearest = np.zeros(candidates.shape[0])
    turned = labelled.T.tocsc()
    if not labelled.shape[0]:
        return nearest
    for start in range(0, len(nearest), ROWS):
        similar = candidates[start : start + ROWS] @ turned
        nearest[start : start + ROWS] = similar.max(axis=1).toarray().ravel()
    return nearest


def _gains(candidates: Any, turned: Any, covered: Floats) -> Floats:
    """What each candidate adds by itself."""
    gains = np.zeros(len(covered))
    for start in range(0, len(covered), ROWS):
        similar = (candidates[start : start + ROWS] @ turned).toarray()
        gains[start : start + ROWS] = np.maximum(similar - covered, 0).sum(1)
    return gains


def _similar(candidates: Any, number: int) -> Floats:
    """The similarity of all candidates to one of them."""
    return np.asarray(candidates @ candidates[number].toarray().ravel(), np.float64)
