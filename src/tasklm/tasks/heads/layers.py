"""The heads of kinds whose answers follow from single tokens."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-5  # of the LayerNorm, ModernBERT's


class OutHead(nn.Module):
    """A head whose last layer is one linear map."""

    out: nn.Linear

    def silence(self) -> None:
        """Makes all outputs 0 until it is trained."""
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    @property
    def silent(self) -> bool:
        """Whether answers do not depend on the states that it reads: as `silence` left it."""
        return not bool(self.out.weight.any() or self.out.bias.any())


class TokenHead(OutHead):
    """Reads each place by itself, mostly the first token of a row: Linear, GELU, Linear (TLM
    section 3).

    `reads` places next to one another, the first token and marks, may make one answer: their states
    are laid end to end.

    `normed`: with a LayerNorm without bias before the last map, which is the head that ModernBERT's
    classes in transformers have.
    """

    def __init__(
        self, width: int, outputs: int, dropout: float, normed: bool = False, reads: int = 1
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width * reads, width)
        self.norm = nn.LayerNorm(width, EPSILON, bias=False) if normed else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, outputs)
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass on states of so many rows and places."""
        answers = rows * places * self.out.in_features / self.dense.in_features
        return 2.0 * answers * (self.dense.weight.numel() + self.out.weight.numel())

    def forward(self, states: Tensor) -> Tensor:
        """Returns outputs (rows, places / reads, outputs) from states (rows, places, width)."""
        together = states.reshape(*states.shape[:-2], -1, self.dense.in_features)
        outputs: Tensor = self.out(
            self.dropout(self.norm(functional.gelu(self.dense(self.dropout(together)))))
        )
        return outputs


class TagHead(OutHead):
    """A score for each tag from the state of each word's first piece."""

    def __init__(self, width: int, tags: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, tags)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.zeros_(self.out.bias)

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass on states of so many rows and places."""
        return 2.0 * rows * places * self.out.weight.numel()

    def forward(self, states: Tensor) -> Tensor:
        """Returns scores (rows, places, tags) of states (rows, places, width)."""
        scores: Tensor = self.out(self.dropout(states))
        return scores
