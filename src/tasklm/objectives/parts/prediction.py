"""The head that predicts tokens: a dense layer, GELU and a norm; its output matrix is the encoder's
token embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.encoders.kernels.usable import USABLE
from tasklm.tokens.masking import NONE

if USABLE:
    from tasklm.encoders.kernels.token_losses import token_losses
else:  # PyTorch's own kernels do it
    token_losses = None  # type: ignore[assignment]


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
        """Logits (states, vocabulary) of hidden states (states, width)."""
        return functional.linear(self._transformed(hidden), tokens.weight, self.bias)

    def loss(self, hidden: Tensor, tokens: nn.Embedding, answers: Tensor) -> Tensor:
        """The cross-entropy summed over hidden states (states, width) whose answer is not NONE."""
        if (
            token_losses is None
            or hidden.device.type != "cuda"
            or not torch.is_autocast_enabled("cuda")
        ):
            return functional.cross_entropy(
                self.logits(hidden, tokens).float(), answers, ignore_index=NONE, reduction="sum"
            )
        losses: Tensor = token_losses(
            functional.linear(self._transformed(hidden), tokens.weight), self.bias, answers
        )
        return losses.sum()

    def _transformed(self, hidden: Tensor) -> Tensor:
        transformed: Tensor = self.norm(functional.gelu(self.dense(hidden), approximate=self.gelu))
        return transformed
