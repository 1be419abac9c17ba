"""The head that predicts tokens: a dense layer, GELU and a norm; its output matrix is the encoder's token embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.weights import draw_weights, initial_spread


class TokenPrediction(nn.Module):
    """Hidden states of an encoder → logits of all tokens, as in BERT (arXiv 1810.04805)."""

    def __init__(self, encoder: str, shape: Shape) -> None:
        super().__init__()
        kind = ENCODERS.get(encoder)
        self.gelu: str = kind.gelu
        self.dense = nn.Linear(shape.width, shape.token_width)
        self.norm = nn.LayerNorm(shape.token_width, kind.epsilon)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        draw_weights(self.dense, initial_spread(shape.width))

    def logits(self, hidden: Tensor, tokens: nn.Embedding) -> Tensor:
        """Returns logits (states, vocabulary) of hidden states (states, width)."""
        hidden = self.norm(functional.gelu(self.dense(hidden), approximate=self.gelu))
        return functional.linear(hidden, tokens.weight, self.bias)
