"""The heads of tasks that take turns with one encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn


class TurnsHead(nn.Module):
    """A head for each turn; which of them reads a batch is known from the batch."""

    def __init__(self, heads: Iterable[nn.Module]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)


def head_of_turn(head: nn.Module, turn: int) -> Any:
    """The head that reads the batches of a turn; the only one where no tasks take turns."""
    return head.heads[turn] if isinstance(head, TurnsHead) else head


def head_with_wide(head: nn.Module) -> Any:
    """The head whose outputs a wide part is added to: of tasks that take turns, the one of those
    that share a head, which has the first turn.
    """
    return head_of_turn(head, 0)
