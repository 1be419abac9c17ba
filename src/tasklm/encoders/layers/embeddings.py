"""The input of BERT and ALBERT: token, position and segment embeddings, summed and normalised."""

from __future__ import annotations

from torch import Tensor, nn

from tasklm.encoders.base import Shape
from tasklm.tokens.batches import TokenBatch

EPSILON = 1e-12  # of LayerNorm, as published
SEGMENTS = 2  # the first and the second text of a pair


class SummedEmbeddings(nn.Module):
    """Base of the encoders with learned positions; `projection` maps onto the layers' width."""

    def __init__(self, shape: Shape, projected: bool, tables: bool) -> None:
        super().__init__()
        self.shape = shape
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
