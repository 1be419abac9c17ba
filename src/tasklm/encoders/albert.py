"""ALBERT (arXiv 1909.11942): BERT with narrow embeddings and the same weights in all layers."""

from __future__ import annotations

from torch import Tensor

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.bert import BertLayer
from tasklm.encoders.initial_weights import draw_encoder
from tasklm.encoders.layers.attention import layout_of
from tasklm.encoders.layers.embeddings import EPSILON, SummedEmbeddings
from tasklm.encoders.layers.residual import Hidden
from tasklm.encoders.layers.two_streams import Streams, embed_queries
from tasklm.tokens.batches import TokenBatch


@ENCODERS.register("albert")
class Albert(SummedEmbeddings):
    """Embeddings, a map onto the layers' width and one layer that is run `shape.layers` times."""

    epsilon, normed_heads = EPSILON, False
    gelu = "tanh"  # as the authors' code computes it

    def __init__(self, shape: Shape, tables: bool = True) -> None:
        super().__init__(shape, True, tables)
        self.shared = BertLayer(shape, self.gelu)
        draw_encoder(self, shape)

    def forward(self, batch: TokenBatch, wanted: Tensor | None = None) -> Tensor:
        """Hidden states (rows, length, width), or (wanted, width)."""
        return self.contextualise(self.embed(batch), batch, wanted)

    def contextualise(
        self, embedded: Tensor, batch: TokenBatch, wanted: Tensor | None = None
    ) -> Tensor:
        """The hidden states of embedded tokens."""
        states: Tensor = self.projection(embedded)
        hidden = Hidden(states, states)
        layout = layout_of(batch, self.shape.width // self.shape.heads)
        for _ in range(self.shape.layers - 1):
            hidden = self.shared(hidden, layout)
        last: Hidden = self.shared(hidden, layout, wanted)
        return last.states

    def views(self, batch: TokenBatch, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Forward states (ends, width) and backward states (begins, width) of the first passes."""
        return self.directed_states(batch, ends, begins, [self.shared] * self.shape.layers)

    def two_streams(self, batch: TokenBatch, streams: Streams) -> Tensor:
        """The states of the query stream (rows, places, width)."""
        own = self.projection(self.embed(batch))
        first = self.projection(embed_queries(self, batch, streams))
        content, queries = Hidden(own, own), Hidden(first, first)
        for number in range(1, self.shape.layers + 1):
            content, queries = self.shared.two_streams(
                content, queries, streams, number == self.shape.layers
            )
        return queries.states
