"""How much of a network's output to add to its wide part, decided by the loss on dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasklm.tasks.base import Floats, Task
from tasklm.tokens.examples import EncodedExamples

SHARES = (0.25, 0.5, 0.75, 1.0)  # what was learnt from little text counts less
PARTS = 50  # of dev, whose losses give the standard error of the total
SURE = 1.64  # standard errors: a one-sided test at 5 %


@dataclass(frozen=True)
class Mixed:
    """A network and its wide part on dev, mixed by the best share of the network."""

    share: float
    loss: float  # mean over targets
    gains: bool  # whether the loss is significantly lower than the wide part's
    predictions: list[Any]  # what the task keeps of the outputs of each unit


def best_share(
    task: Task, examples: EncodedExamples, outputs: Sequence[Floats], scale: float
) -> Mixed:
    """The share with the least loss.

    `outputs` of each unit are the network's and, times `scale`, those of the wide part. The loss is
    more stable than a score: among many epochs and shares, a score on few examples would pick lucky
    ones.
    """
    both, wide = np.concatenate(outputs), np.zeros_like(np.concatenate(outputs))
    ends = np.cumsum([len(own) for own in outputs])
    for unit, end in zip(examples.units, ends, strict=True):
        if unit.wide is not None:
            wide[end - len(unit.wide) : end] = unit.wide
    targets = examples.targets()
    cuts = _cuts(ends, task.together)
    mixed = {share: share * both + (1 - share) * scale * wide for share in SHARES}
    losses = {share: _losses(task, mix, targets, cuts) for share, mix in mixed.items()}
    best = min(reversed(SHARES), key=lambda share: losses[share].sum())
    count = max(1, task.count(targets))
    gains = _is_sure(_losses(task, wide, targets, cuts) - losses[best])
    predictions = [task.keep(own) for own in np.split(mixed[best], ends[:-1])]
    return Mixed(best, float(losses[best].sum()) / count, gains, predictions)


def _cuts(ends: Floats, together: int) -> list[int]:
    """The ends of parts of nearly equal size, which keep units that are answered as one together.

    `ends` are those of units.
    """
    groups = np.asarray(ends)[together - 1 :: together]
    wanted = np.linspace(0, len(groups), min(PARTS, len(groups)) + 1).astype(int)[1:]
    return [int(groups[number - 1]) for number in wanted]


def _losses(task: Task, outputs: Floats, targets: Tensor, cuts: Sequence[int]) -> Floats:
    """The summed loss of each part."""
    values, starts = torch.from_numpy(outputs).double()[None], [0, *cuts[:-1]]
    return np.array(
        [
            float(task.loss(values[:, a:b], targets[:, a:b]))
            for a, b in zip(starts, cuts, strict=True)
        ]
    )


def _is_sure(gains: Floats) -> bool:
    """Whether the gain of the parts is significant: a one-sided test of their mean."""
    if len(gains) < 2:
        return bool(gains.sum() > 0)
    return bool(gains.sum() > SURE * gains.std(ddof=1) * np.sqrt(len(gains)))
