"""The loss of stage 1 on selected text that it never reads: twenty times, the last at its end.

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
# Tokens of a measurement, for each token that stage 1 reads. A pass forward is a third of a step's
# computation: all measurements take 20 · 0.001 / 3 = 0.7 % of it.
SHARE = 0.001
AT_ONCE = 16_384  # tokens of one pass, whatever the micro-batches of training
SEED = 1  # of the targets, in all trainings


def rows_measured(steps: int, batch: int) -> int:
    """The rows of a measurement, at most, in a training of so many steps and rows per step."""
    return max(1, int(SHARE * steps * batch))


def batches_of(text: Corrupted, machine: Machine) -> list[Corrupted]:
    """The rows of this process, on its device, in batches for one pass each."""
    ranks, length = machine.ranks, text.batch.ids.shape[1]
    own = text.part(ranks.rank, ranks.count)
    parts = -(-len(own.batch.ids) * length // AT_ONCE)
    batches = [own.part(number, parts) for number in range(parts)]
    if machine.counts_pieces(text.batch):
        batches = [batch.counted() for batch in batches]
    return [batch.to(machine.device) for batch in batches]


@dataclass(eq=False)
class HeldOutText:
    """The rows of held-out text, with their targets, and a model's loss on them."""

    module: Any  # the joint model
    machine: Machine
    batches: Sequence[Corrupted]  # the rows of this process, on its device
    targets: dict[str, int]  # of all rows, by loss
    passages: int
    tokens: int
    loss: float | None = None  # at the last measurement

    def due(self, step: int, steps: int) -> bool:
        """Whether a measurement follows `step` of `steps` steps."""
        return step * MEASUREMENTS // steps > (step - 1) * MEASUREMENTS // steps

    def measure(self) -> float:
        """The objective's loss per target, its parts weighted as in training."""
        was_training, machine = self.module.training, self.machine
        self.module.eval()
        with torch.no_grad(), machine.arithmetic():
            losses = [self.module.language_losses(batch) for batch in self.batches]
        self.module.train(was_training)
        sums = torch.zeros(len(self.targets), dtype=torch.float64, device=machine.device)
        for one in losses:  # none in a process without rows
            sums += torch.stack([one[name] for name in self.targets])
        totals = machine.ranks.sum(sums).tolist()
        self.loss = 0.0
        for (name, count), total in zip(self.targets.items(), totals, strict=True):
            self.loss += self.module.objective.weights[name] * total / max(1, count)
        return self.loss

    def summary(self) -> dict[str, Any]:
        """The last loss, and what it was measured on."""
        targets = sum(self.targets.values())
        about = {"passages": self.passages, "tokens": self.tokens, "targets": targets}
        return {"loss": self.loss, **about}
