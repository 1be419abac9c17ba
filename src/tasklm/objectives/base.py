"""What a self-supervised objective must offer: (encoder, batch) → a loss.

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
from tasklm.tokens.masking import NONE


@dataclass
class Corrupted:
    """A batch as the objective will show it, with its targets, known before any computation."""

    batch: TokenBatch
    picked: Tensor  # (rows, places) int64: columns of the tokens to predict
    answers: Tensor  # (rows, places) int64: the original tokens there; NONE where a row has fewer

    def targets(self) -> int:
        """Returns how many tokens are to be predicted."""
        return int((self.answers != NONE).sum())

    def to(self, device: torch.device) -> Corrupted:
        """Returns the batch and its targets on a device."""
        return Corrupted(self.batch.to(device), self.picked.to(device, non_blocking=True), self.answers.to(device, non_blocking=True))

    def pinned(self) -> Corrupted:
        """Returns the batch and its targets in memory that a GPU reads by itself."""
        return Corrupted(self.batch.pinned(), self.picked.pin_memory(), self.answers.pin_memory())

    def part(self, number: int, parts: int) -> Corrupted:
        """Returns one of `parts` micro-batches, with the very same targets as in the whole, so that accumulation changes no result."""
        columns = (tensor.tensor_split(parts)[number] for tensor in (self.picked, self.answers))
        return Corrupted(self.batch.part(number, parts), *columns)

    def places(self) -> tuple[Tensor, Tensor]:
        """Returns positions in the flattened batch and the answers there, both (targets,).

        A compiled graph needs one shape for all batches: there the places that ask nothing stay in.
        """
        rows, length = self.batch.ids.shape
        starts = torch.arange(0, rows * length, length, device=self.picked.device)
        places, answers = (self.picked + starts[:, None]).flatten(), self.answers.flatten()
        if places.device.type == "cpu" and not torch.compiler.is_compiling():
            asked = answers != NONE
            return places[asked], answers[asked]
        return places, answers


class Objective(Protocol):
    """A module (it may own heads or networks) that turns text into a loss."""

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """Returns the batch with its targets drawn afresh; touches no module and no global state: it runs beside the training."""
        ...

    def __call__(self, encoder: Encoder, corrupted: Corrupted) -> Tensor:
        """Returns the loss summed over the targets."""
        ...


OBJECTIVES: Registry[Any] = Registry("objective", "tasklm.objectives")
