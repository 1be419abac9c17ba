"""The input of BERT and ALBERT: token, position and segment embeddings, summed and normalised."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from torch import Tensor, nn

from tasklm.encoders.base import Shape
from tasklm.encoders.layers.attention import layout_of
from tasklm.encoders.layers.directed import (
    BACKWARD,
    FORWARD,
    SeparateViews,
    directed,
    layers_below,
)
from tasklm.encoders.layers.residual import Hidden
from tasklm.tokens.batches import TokenBatch

EPSILON = 1e-12  # of LayerNorm, as published
SEGMENTS = 2  # the first and the second text of a pair


class SummedEmbeddings(SeparateViews, nn.Module):
    """Base of the encoders with learned positions; `projection` maps onto the layers' width."""

    def __init__(self, shape: Shape, projected: bool, tables: bool) -> None:
        super().__init__()
        self.shape = shape
        self.view_width = shape.width
        if tables:
            self.token = nn.Embedding(shape.vocabulary, shape.token_width)
            self.position = nn.Embedding(shape.positions, shape.token_width)
            self.segment = nn.Embedding(SEGMENTS, shape.token_width)
            self.norm = nn.LayerNorm(shape.token_width, EPSILON)
        self.dropout = nn.Dropout(shape.dropout)
        self.projection: nn.Module = nn.Identity()
        if projected:
            self.projection = nn.Linear(shape.token_width, shape.width)

    def embed(self, batch: TokenBatch) -> Tensor:
        """The embeddings of all tokens (rows, length, token width)."""
        segment = self.segment.weight[0]
        if batch.segments is not None:
            segment = self.segment(batch.segments)
        summed = self.token(batch.ids) + segment + self.position(batch.positions)
        embedded: Tensor = self.dropout(self.norm(summed))
        return embedded

    def directed_states(
        self, batch: TokenBatch, ends: Tensor, begins: Tensor, layers: Iterable[Any]
    ) -> tuple[Tensor, Tensor]:
        """The states of the lowest of some layers: those of `ends`, which read to the left, and
        those of `begins`, which read to the right.
        """
        count = layers_below(self.shape.layers)
        first: Tensor = self.projection(self.embed(batch))
        lowest = list(islice(layers, count))
        states = []
        for direction, wanted in ((FORWARD, ends), (BACKWARD, begins)):
            layout = layout_of(directed(batch, direction), self.shape.width // self.shape.heads)
            hidden = Hidden(first, first)
            for layer in lowest[:-1]:
                hidden = layer(hidden, layout)
            states.append(lowest[-1](hidden, layout, wanted).states)
        return states[0], states[1]
