"""Which examples an epoch has when several tasks share it: a task is drawn by its size to a power
(BAM, arXiv 1907.04829, has 0.75), so that small tasks are repeated and large ones are not read out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.examples import Example
from tasklm.tokens.batches import shuffled

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class TaskDraws:
    """The examples of each task by number, and how many of them an epoch has."""

    groups: tuple[Numbers, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, examples: Sequence[Example], power: float) -> TaskDraws | None:
        """The draws from the examples of several tasks; None if all are of one."""
        names = list(dict.fromkeys(example.task for example in examples))
        if len(names) < 2:
            return None
        tasks = np.array([example.task for example in examples])
        groups = tuple(np.flatnonzero(tasks == name) for name in names)
        weights = np.array([len(group) for group in groups], np.float64) ** power
        shares = len(examples) * weights / weights.sum()
        return cls(groups, tuple(max(1, round(share)) for share in shares.tolist()))

    @property
    def size(self) -> int:
        """The examples of an epoch."""
        return sum(self.counts)

    def order(self, seed: int, epoch: int) -> Numbers:
        """The examples of an epoch in order; a task goes on where the epoch before left it."""
        drawn = []
        for number, (group, count) in enumerate(zip(self.groups, self.counts, strict=True)):
            first = epoch * count
            passes = range(first // len(group), (first + count - 1) // len(group) + 1)
            orders = [group[shuffled(len(group), seed, one, 3, number)] for one in passes]
            start = first - passes[0] * len(group)
            drawn.append(np.concatenate(orders)[start : start + count])
        together: Numbers = np.concatenate(drawn)
        return np.asarray(together[shuffled(len(together), seed, epoch)])


def weight_of(examples: Sequence[Example], power: float) -> float:
    """The sum over the tasks of some examples of their sizes to a power."""
    sizes = Counter(example.task for example in examples)
    return float(sum(size**power for size in sizes.values()))
