"""Steps that are skipped because a loss or a gradient was not a finite number."""

from __future__ import annotations

import torch
from torch import Tensor

IN_A_ROW = 5  # steps of one kind, all skipped: that kind is not being learnt at all


class SkippedSteps:
    """Counts skipped steps on the device, in total and in a row for each kind of step.

    Reading a count waits for the device. Stage 1 has two kinds, task and text: if every task step
    fails, the many steps on text must not hide it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._total = torch.zeros((), device=device)
        self._in_a_row: dict[str, Tensor] = {}

    def add(self, kind: str, skip: Tensor) -> None:
        """Counts a step; `skip` (0-dim, float, on the device) is 1 if it was skipped."""
        self._total += skip
        before = self._in_a_row.get(kind, torch.zeros((), device=self._device))
        self._in_a_row[kind] = (before + 1) * skip

    def total(self) -> int:
        """The number of skipped steps since the start of training."""
        return int(self._total)

    def stuck(self) -> tuple[str, int] | None:
        """A kind of step of which the last IN_A_ROW or more were skipped, and how many."""
        for kind, count in self._in_a_row.items():
            if count >= IN_A_ROW:
                return kind, int(count)
        return None

    def restore(self, total: int) -> None:
        """Goes back to the count of a checkpoint."""
        self._total.fill_(total)
        self._in_a_row.clear()
