"""How much of a network's output to add to its wide part, decided by the loss on dev.

Each of several tasks has a share of its own: a task that the network does not help yet must not
hold back the others, nor they it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tasklm.tasks.base import NONE, Floats, Task, Unit
from tasklm.tasks.several import members_of, turns_of
from tasklm.tokens.examples import EncodedExamples, EncodedTurns

SHARES = (0.25, 0.5, 0.75, 1.0)  # what was learnt from little text counts less
PARTS = 50  # of dev, whose losses give the standard error of the total
SURE = 1.64  # standard errors: a one-sided test at 5 %


@dataclass(frozen=True)
class Mixed:
    """A network and its wide part on dev, mixed by the best share of the network."""

    shares: tuple[float, ...]  # of each of several tasks, or of the one
    loss: float  # mean over targets
    gains: bool  # whether the loss is significantly lower than the wide part's
    predictions: list[Any]  # what the task keeps of the outputs of each unit


@dataclass(frozen=True)
class _Answers:
    """What network and wide part say of the units of one task, laid end to end."""

    task: Task
    both: Sequence[Floats]  # of each unit: the network's outputs and, scaled, the wide part's
    wide: Sequence[Floats]
    targets: Tensor

    def best_share(self, scale: float) -> tuple[float, float, bool]:
        """The share with the least loss, that loss, and whether it is surely below the wide
        part's.
        """
        sizes = [len(own) for own in self.both]
        ends = np.cumsum(sizes)
        cuts = _cuts(ends, self.task.together)
        reads = len(self.targets) // ends[-1]  # targets of an answer: one at each place it reads
        losses: list[list[float]] = []  # of each part: those of the shares, then the wide part's
        for begin, end in zip([0, *cuts[:-1]], cuts, strict=True):
            first, last = np.searchsorted(ends, [begin, end - 1], side="right")
            inside = slice(first, last + 1)
            both, wide = np.concatenate(self.both[inside]), np.concatenate(self.wide[inside])
            tried = [*(_mixed(both, scale * wide, share) for share in SHARES), wide]
            own = self.targets[begin * reads : end * reads]
            losses.append([_loss(self.task, mix, own, sizes[inside]) for mix in tried])
        summed = np.array(losses)
        best = max(range(len(SHARES)), key=lambda number: (-summed[:, number].sum(), number))
        gains = _is_sure(summed[:, -1] - summed[:, best])
        return SHARES[best], float(summed[:, best].sum()), gains


def best_share(
    task: Task, examples: EncodedExamples, outputs: Sequence[Floats], scale: float
) -> Mixed:
    """The share with the least loss, of each of several tasks.

    `outputs` of each unit are the network's and, times `scale`, those of the wide part. The loss is
    more stable than a score: among many epochs and shares, a score on few examples would pick lucky
    ones.
    """
    if isinstance(examples, EncodedTurns):
        return _of_turns(task, examples, outputs, scale)
    if members_of(task):
        return _of_members(task, examples, outputs, scale)
    wide = [_added(*pair) for pair in zip(examples.units, outputs, strict=True)]
    targets = examples.targets()
    share, loss, gains = _Answers(task, outputs, wide, targets[0]).best_share(scale)
    predictions = [
        task.keep(_mixed(own, scale * added, share))
        for own, added in zip(outputs, wide, strict=True)
    ]
    return Mixed((share,), loss / max(1, task.count(targets)), gains, predictions)


def _of_members(
    task: Task, examples: EncodedExamples, outputs: Sequence[Floats], scale: float
) -> Mixed:
    """The best share of each task; 0 where its network is not surely better than its wide part,
    which a model of that task alone would be left with.
    """
    predictions = [np.copy(own) for own in outputs]
    shares, total, any_gains = [], 0.0, False
    for number, member in enumerate(members_of(task)):
        places = [
            place
            for place, unit in enumerate(examples.units)
            if examples.examples[unit.example].task == member.name
        ]
        wide = [
            _added(examples.units[place], outputs[place])[:, member.columns] for place in places
        ]
        if not any(own.any() for own in wide):  # it has none, or there is nothing to judge by
            shares.append(1.0)
            continue
        own = [np.asarray(outputs[place])[:, member.columns] for place in places]
        targets = [_targets_of(examples.units[place]) for place in places]
        answers = _Answers(member.task, own, wide, member.targets(torch.cat(targets), number))
        share, loss, gains = answers.best_share(scale)
        share *= gains
        for place, both, added in zip(places, own, wide, strict=True):
            predictions[place][:, member.columns] = _mixed(both, scale * added, share)
        shares.append(share)
        total += member.weight * loss / member.places
        any_gains = any_gains or gains
    count = max(1, task.count(examples.targets()))
    return Mixed(tuple(shares), total / count, any_gains, [task.keep(own) for own in predictions])


def _of_turns(task: Task, examples: EncodedTurns, outputs: Sequence[Floats], scale: float) -> Mixed:
    """Those of the tasks that share a head; others have no wide part, and need the network."""
    predictions: list[Any] = []
    shares, loss = dict.fromkeys((member.name for member in members_of(task)), 1.0), 0.0
    for turn, part in zip(turns_of(task), examples.parts, strict=True):
        first = len(predictions)
        own = outputs[first : first + len(part.units)]
        if not turn.mixed:
            predictions += [turn.task.keep(one) for one in own]
            continue
        mixed = _of_members(turn.task, part, own, scale)
        shares |= dict(zip(turn.names, mixed.shares, strict=True))
        predictions, loss = [*predictions, *mixed.predictions], mixed.loss
    return Mixed(tuple(shares.values()), loss, True, predictions)


def _targets_of(unit: Unit) -> Tensor:
    assert unit.targets is not None
    return torch.from_numpy(unit.targets)


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
