"""What a self-supervised objective must offer: (encoder, batch) → named losses.

A loss is a sum and the number of targets it runs over, so that the caller can divide by the targets of the whole
step, however many micro-batches or devices it is spread over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tasklm.encoders.base import Encoder
from tasklm.registry import Registry
from tasklm.tokens.batches import TokenBatch


@dataclass
class Corrupted:
    """A batch as the objective will show it, with the number of targets, known before any computation."""

    batch: TokenBatch
    picked: Tensor  # (targets,) int64: positions to predict, in the flattened batch
    answers: Tensor  # (targets,) int64: the original tokens there

    @property
    def targets(self) -> int:
        """Returns how many tokens are to be predicted."""
        return len(self.answers)

    def to(self, device: torch.device) -> Corrupted:
        """Returns the batch and its targets on a device."""
        return Corrupted(self.batch.to(device), self.picked.to(device), self.answers.to(device))

    def split(self, parts: int) -> list[Corrupted]:
        """Returns micro-batches with the very same targets as the whole, so that accumulation changes no result."""
        length = self.batch.ids.shape[1]
        pieces, first = [], 0
        for batch in self.batch.split(parts):
            last = first + len(batch.ids) * length
            inside = (self.picked >= first) & (self.picked < last)
            pieces.append(Corrupted(batch, self.picked[inside] - first, self.answers[inside]))
            first = last
        return pieces


class Objective(Protocol):
    """A module (it may own heads or networks) that turns text into a loss."""

    def corrupt(self, batch: TokenBatch, generator: torch.Generator) -> Corrupted:
        """Returns the batch with its targets drawn afresh."""
        ...

    def __call__(self, encoder: Encoder, corrupted: Corrupted) -> Tensor:
        """Returns the loss summed over the targets."""
        ...


OBJECTIVES: Registry[Any] = Registry("objective", "tasklm.objectives")
