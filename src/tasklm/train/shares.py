"""How much of what a network adds to its wide part is worth keeping: the loss on dev decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tasklm.tasks.base import Floats, Task
from tasklm.tokens.examples import EncodedExamples

SHARES = (0.25, 0.5, 0.75, 1.0)  # what little text taught counts for less


def best_share(task: Task, examples: EncodedExamples, outputs: Sequence[Floats], scale: float) -> tuple[float, float, list[Any]]:
    """The share with the least loss, that loss, and what the task keeps of the outputs then.

    `outputs` of each unit are the network's and, times `scale`, those of the wide part. The loss
    is steadier than a score: of many epochs and shares, a score on few examples would choose
    those that were lucky.
    """
    both, wide = np.concatenate(outputs), np.zeros_like(np.concatenate(outputs))
    ends = np.cumsum([len(own) for own in outputs])
    for unit, end in zip(examples.units, ends, strict=True):
        if unit.wide is not None:
            wide[end - len(unit.wide) : end] = scale * unit.wide
    targets = examples.targets()
    mixed = {share: wide + share * (both - wide) for share in SHARES}
    losses = {
        share: float(task.loss(torch.from_numpy(mix).double()[None], targets)) / max(1, task.count(targets)) for share, mix in mixed.items()
    }
    best = min(reversed(SHARES), key=lambda share: losses[share])
    return best, losses[best], [task.keep(own) for own in np.split(mixed[best], ends[:-1])]
