"""The head of answers, with room for what a linear model says of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasklm.tasks.heads.answer_search import OF_NETWORK, OUTPUTS, RANK
from tasklm.tasks.heads.layers import TokenHead

BEGIN = slice(2, 2 + RANK)  # outputs: one of the two vectors whose product scores an end


class AnswerHead(TokenHead):
    """The outputs of a token head, and zeros in the columns that a wide part alone fills."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__(width, OF_NETWORK, dropout)

    def silence(self) -> None:
        """Makes starts, biases and one of the two vectors of ends 0, and so all scores.

        Were both vectors 0, neither would have a gradient.
        """
        weight, bias = self.out.weight[BEGIN].detach().clone(), self.out.bias[BEGIN].detach()
        bias = bias.clone()
        super().silence()
        for tensor, values in ((self.out.weight, weight), (self.out.bias, bias)):
            tensor.data[BEGIN] = values

    @property
    def silent(self) -> bool:
        """Whether all scores are 0, whatever the one vector says that `silence` leaves."""
        others = torch.ones(len(self.out.bias), dtype=torch.bool)
        others[BEGIN] = False
        return not bool(self.out.weight[others].any() or self.out.bias[others].any())

    def forward(self, states: Tensor) -> Tensor:
        """The outputs (rows, places, OUTPUTS) of states (rows, places, width)."""
        return functional.pad(super().forward(states), (0, OUTPUTS - OF_NETWORK))
