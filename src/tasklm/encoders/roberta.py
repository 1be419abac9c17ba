"""RoBERTa (arXiv 1907.11692): BERT's encoder with a different ε in its LayerNorms, for checkpoints
trained with it.

Positions are counted from 0 as in `bert`: the rows of padding in front of published position tables
are left out when they are read.
"""

from __future__ import annotations

from torch import nn

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.bert import Bert

EPSILON = 1e-5  # of LayerNorm, as published


@ENCODERS.register("roberta")
class Roberta(Bert):
    """`bert` with RoBERTa's LayerNorms."""

    epsilon = EPSILON

    def __init__(self, shape: Shape, tables: bool = True) -> None:
        super().__init__(shape, tables)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = EPSILON
