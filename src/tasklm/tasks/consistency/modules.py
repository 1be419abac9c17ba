"""The auxiliary modules of cross-view training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tasklm.tasks.consistency.base import WHOLE, Auxiliary
from tasklm.tasks.heads.biaffine import BiaffineHead


class StateModule(Auxiliary):
    """Linear, ReLU, Linear on one state of each place."""

    def __init__(self, reads: str, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.reads = (reads,)
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, outputs)

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass."""
        return 2.0 * rows * places * (self.dense.weight.numel() + self.out.weight.numel())

    def forward(self, states: Tensor) -> Tensor:
        """Outputs (rows, places, outputs) of states (rows, places, width)."""
        outputs: Tensor = self.out(self.dense(self.dropout(states)).relu())
        return outputs


class PairModule(Auxiliary):
    """Biaffine scores of arcs from a view of the dependents and a view of the heads.

    The root, the first place of a row, is a learnt vector: the state there may have read all.
    """

    def __init__(self, reads: tuple[str, str], width: int, relations: int, dropout: float) -> None:
        super().__init__()
        self.reads = reads
        self.head = BiaffineHead(width, relations, dropout)
        self.root = nn.Parameter(0.02 * torch.randn(2, width))

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass."""
        return self.head.flops(rows, places)

    def forward(self, dependents: Tensor, heads: Tensor) -> Tensor:
        """Scores (rows, places, places, 1 + relations), as the primary head gives them."""
        outputs: Tensor = self.head(
            self._with_root(dependents, self.root[0]), self._with_root(heads, self.root[1])
        )
        return outputs

    def _with_root(self, states: Tensor, root: Tensor) -> Tensor:
        first = root.to(states.dtype).expand(len(states), 1, -1)
        return torch.cat([first, states[:, 1:]], 1)


def state_modules(
    names: Sequence[str], widths: Mapping[str, int], outputs: int, dropout: float
) -> dict[str, Auxiliary]:
    """One module for each named state; that of the whole text is called full."""
    return {
        "full" if name == WHOLE else name: StateModule(name, widths[name], outputs, dropout)
        for name in names
    }
