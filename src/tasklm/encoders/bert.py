"""BERT (arXiv 1810.04805): post-norm Transformer encoder with learned positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.attention import attend, piece_mask
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.weights import draw_weights, initial_spread
from tasklm.tokens.batches import TokenBatch

EPSILON = 1e-12  # of LayerNorm, as published


class BertLayer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and LayerNorm.

    Dropout acts on what the two add to the residual, not on attention probabilities: those would rule out the fused kernels.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.attention_norm = nn.LayerNorm(shape.width, EPSILON)
        self.up = nn.Linear(shape.width, shape.feedforward)
        self.down = nn.Linear(shape.feedforward, shape.width)
        self.norm = nn.LayerNorm(shape.width, EPSILON)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        rows, length, width = hidden.shape
        split = self.query_key_value(hidden).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (rows, heads, length, head width)
        mixed = attend(query, key, value, mask)
        mixed = self.attention_out(mixed.transpose(1, 2).reshape(rows, length, width))
        hidden = self.attention_norm(hidden + self.dropout(mixed))
        out: Tensor = self.norm(hidden + self.dropout(self.down(functional.gelu(self.up(hidden)))))
        return out


@ENCODERS.register("bert")
class Bert(nn.Module):
    """Embeddings and layers; no pooler, the heads read the hidden states."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.norm = nn.LayerNorm(shape.width, EPSILON)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(BertLayer(shape) for _ in range(shape.layers))
        spread = initial_spread(shape.width)
        for module in self.modules():
            draw_weights(module, spread)

    def forward(self, batch: TokenBatch) -> Tensor:
        hidden = self.dropout(self.norm(self.token(batch.ids) + self.position(batch.positions)))
        mask = piece_mask(batch.pieces)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return torch.as_tensor(hidden)
