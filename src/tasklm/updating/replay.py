"""Which examples a network reads in an update: the new ones, and earlier ones beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.dedupe import text_key
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Example

TIMES = 2  # earlier examples for each new one …
FEWEST = 200  # … and at least so many, so that no class is forgotten
Places = NDArray[np.int64]


def mixture(task: Task, train: Sequence[Example], fresh: NDArray[np.bool_]) -> tuple[Places, int]:
    """The positions of the examples to read, and how many of them are earlier ones.

    Earlier ones are drawn by the hash of their text, class by class in turn, so that rare classes
    are all there; never fewer than there are new ones, if there are as many.
    """
    new = np.flatnonzero(fresh)
    count = max(TIMES * len(new), FEWEST)
    groups: dict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(~fresh).tolist():
        names = task.classes(train[place].label)
        groups[min(names, default="")].append(place)
    for own in groups.values():
        own.sort(key=lambda place: text_key(train[place].text))
    earlier: list[int] = []
    turn = 0
    while len(earlier) < count and any(turn < len(own) for own in groups.values()):
        earlier += [own[turn] for _, own in sorted(groups.items()) if turn < len(own)]
        turn += 1
    chosen = np.sort(np.array([*new.tolist(), *earlier[:count]], np.int64))
    return chosen, min(len(earlier), count)
