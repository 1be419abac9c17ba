"""How much of a network's output to add to its wide part, decided by the loss on dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tasklm.tasks.base import NONE, Floats, Task, Unit
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
    sizes = [len(own) for own in outputs]
    ends = np.cumsum(sizes)
    cuts = _cuts(ends, task.together)
    targets = examples.targets()
    losses: list[list[float]] = []  # of each part: those of the shares, then the wide part's
    for begin, end in zip([0, *cuts[:-1]], cuts, strict=True):
        first, last = np.searchsorted(ends, [begin, end - 1], side="right")
        inside = slice(first, last + 1)
        units, own = examples.units[inside], outputs[inside]
        both = np.concatenate(own)
        wide = np.concatenate([_added(*pair) for pair in zip(units, own, strict=True)])
        tried = [*(_mixed(both, scale * wide, share) for share in SHARES), wide]
        losses.append([_loss(task, mix, targets[0, begin:end], sizes[inside]) for mix in tried])
    summed = np.array(losses)
    best = max(range(len(SHARES)), key=lambda number: (-summed[:, number].sum(), number))
    share = SHARES[best]
    count = max(1, task.count(targets))
    gains = _is_sure(summed[:, -1] - summed[:, best])
    predictions = [
        task.keep(_mixed(own, scale * _added(unit, own), share))
        for unit, own in zip(examples.units, outputs, strict=True)
    ]
    return Mixed(share, float(summed[:, best].sum()) / count, gains, predictions)


def _added(unit: Unit, outputs: Floats) -> Floats:
    """What the wide part adds to the outputs of a unit."""
    wide, own = np.zeros_like(outputs), unit.added()
    if own is not None:
        wide[-len(own) :] = own
    return wide


def _mixed(both: Floats, wide: Floats, share: float) -> Floats:
    return share * both + (1 - share) * wide


def _cuts(ends: Floats, together: int) -> list[int]:
    """The ends of parts of nearly equal size, which keep units that are answered as one together.

    `ends` are those of units.
    """
    groups = np.asarray(ends)[together - 1 :: together]
    wanted = np.linspace(0, len(groups), min(PARTS, len(groups)) + 1).astype(int)[1:]
    return [int(groups[number - 1]) for number in wanted]


def _loss(task: Task, outputs: Floats, targets: Tensor, sizes: Sequence[int]) -> float:
    """The summed loss of units with so many places each, laid end to end or one a row."""
    values = torch.from_numpy(outputs).double()
    if task.packs:
        return float(task.loss(values[None], targets[None]))
    rows = [
        pad_sequence(list(torch.split(one, list(sizes))), batch_first=True, padding_value=NONE)
        for one in (values, targets)
    ]
    return float(task.loss(*rows))


def _is_sure(gains: Floats) -> bool:
    """Whether the gain of the parts is significant: a one-sided test of their mean."""
    if len(gains) < 2:
        return bool(gains.sum() > 0)
    return bool(gains.sum() > SURE * gains.std(ddof=1) * np.sqrt(len(gains)))
