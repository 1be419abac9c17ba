"""The loss of stage 1 on selected text that it never reads: on a part of it twenty times, for the
learning curve, and on all of it at the end.

The text and its targets are fixed before the first step and stay on the device; they depend on
neither the seed nor the micro-batches, so that recipes can be compared on them. No dropout, and
weights are their averages where these are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tasklm.device.machine import Machine
from tasklm.objectives.base import Corrupted

HELD_OUT = "held-out text"  # its name in learning curves
MEASUREMENTS = 20
# Tokens of a measurement, and of the last one, for each token that stage 1 reads, at most. A pass
# forward is a third of a step's computation: the measurements take 20 · 0.00067 / 3 = 0.44 % of it,
# and the last one as much.
SHARE, LAST_SHARE = 1 / 1500, 1 / 75
AT_ONCE = 16_384  # tokens of one pass, whatever the micro-batches of training
SEED = 1  # of the targets, in all trainings


def rows_measured(steps: int, batch: int) -> tuple[int, int]:
    """The rows of a measurement, and of the last one, at most, in a training of so many steps and
    rows per step.

    The former are a power of two: trainings of nearly as many steps read the same.
    """
    few = max(1, int(SHARE * steps * batch))
    return 1 << (few.bit_length() - 1), max(1, int(LAST_SHARE * steps * batch))


@dataclass(frozen=True)
class Rows:
    """Rows with their targets."""

    batches: Sequence[Corrupted]  # those of this process, on its device
    targets: dict[str, int]  # of all rows, by loss
    tokens: int

    @classmethod
    def of(cls, text: Corrupted, objective: Any, machine: Machine) -> Rows:
        """The rows of a text, in batches for one pass each."""
        ranks, length = machine.ranks, text.batch.ids.shape[1]
        own = text.part(ranks.rank, ranks.count)
        parts = -(-len(own.batch.ids) * length // AT_ONCE)
        batches = [own.part(number, parts) for number in range(parts)]
        if machine.counts_pieces(text.batch):
            batches = [batch.counted() for batch in batches]
        batches = [batch.to(machine.device) for batch in batches]
        return cls(batches, objective.targets(text), text.batch.ids.numel())


@dataclass(eq=False)
class HeldOutText:
    """The rows of held-out text, and a model's loss on them."""

    module: Any  # the joint model
    machine: Machine
    passages: int
    some: Rows  # of the learning curve
    whole: Rows  # of the end

    def due(self, step: int, steps: int) -> bool:
        """Whether a measurement follows `step` of `steps` steps."""
        return step * MEASUREMENTS // steps > (step - 1) * MEASUREMENTS // steps

    def loss(self, rows: Rows) -> float:
        """The objective's loss per target, its parts weighted as in training."""
        was_training, machine = self.module.training, self.machine
        self.module.eval()
        with torch.no_grad(), machine.arithmetic():
            losses = [self.module.language_losses(batch) for batch in rows.batches]
        self.module.train(was_training)
        sums = torch.zeros(len(rows.targets), dtype=torch.float64, device=machine.device)
        for one in losses:  # none in a process without rows
            sums += torch.stack([one[name] for name in rows.targets])
        totals = machine.ranks.sum(sums).tolist()
        loss = 0.0
        for (name, count), total in zip(rows.targets.items(), totals, strict=True):
            loss += self.module.objective.weights[name] * total / max(1, count)
        return loss

    def summary(self) -> dict[str, Any]:
        """The loss on all of the text, and what that is."""
        whole = self.whole
        about = {"tokens": whole.tokens, "targets": sum(whole.targets.values())}
        return {"loss": self.loss(whole), "passages": self.passages, **about}
