"""BERT (arXiv 1810.04805): post-norm Transformer encoder with learned positions."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tasklm.encoders.base import ENCODERS, Shape, pick
from tasklm.encoders.initial_weights import draw_encoder
from tasklm.encoders.layers.activation import linear_gelu
from tasklm.encoders.layers.attention import Layout, layout_of, project_and_attend
from tasklm.encoders.layers.embeddings import EPSILON, SummedEmbeddings
from tasklm.encoders.layers.residual import Hidden, add_and_norm
from tasklm.encoders.layers.two_streams import Streams, attend_streams, embed_queries, project
from tasklm.tokens.batches import TokenBatch


class BertLayer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and LayerNorm.

    Dropout acts on what the two add to the residual, not on attention probabilities: those would
    rule out the fused kernels.
    """

    def __init__(self, shape: Shape, gelu: str) -> None:
        super().__init__()
        self.heads, self.gelu = shape.heads, gelu
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.attention_norm = nn.LayerNorm(shape.width, EPSILON)
        self.up = nn.Linear(shape.width, shape.feedforward)
        self.down = nn.Linear(shape.feedforward, shape.width)
        self.norm = nn.LayerNorm(shape.width, EPSILON)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Hidden, layout: Layout, wanted: Tensor | None = None) -> Hidden:
        """Hidden states of the same shape (rows, length, width), or (wanted, width)."""
        mixed = project_and_attend(self.query_key_value, hidden.states, self.heads, layout)
        return self._after_attention(pick(hidden.residual, wanted), pick(mixed, wanted))

    def two_streams(
        self, content: Hidden, queries: Hidden, streams: Streams, last: bool
    ) -> tuple[Hidden, Hidden]:
        """The next layer's content (rows, length, width) and queries (rows, places, width).

        Nothing reads the last layer's content but its queries, so that keys and values are all that
        is computed of it.
        """
        asking = project(self.query_key_value, queries.states, self.heads, last=0)
        split = project(self.query_key_value, content.states, self.heads, first=int(last))
        answers, mixed = attend_streams(asking, split, streams)
        if mixed is not None:
            content = self._after_attention(content.residual, mixed)
        return content, self._after_attention(queries.residual, answers)

    def _after_attention(self, residual: Tensor, mixed: Tensor) -> Hidden:
        hidden = add_and_norm(
            self.attention_out, mixed, residual, self.attention_norm, self.dropout
        )
        inner = linear_gelu(self.up, hidden.states, self.gelu)
        return add_and_norm(self.down, inner, hidden.residual, self.norm, self.dropout)


@ENCODERS.register("bert")
class Bert(SummedEmbeddings):
    """Embeddings and layers; no pooler, the heads read the hidden states.

    With embeddings of another width than the layers' it is the encoder of ELECTRA (arXiv
    2003.10555).
    """

    epsilon, gelu, normed_heads = EPSILON, "none", False

    def __init__(self, shape: Shape, tables: bool = True) -> None:
        super().__init__(shape, shape.token_width != shape.width, tables)
        self.layers = nn.ModuleList(BertLayer(shape, self.gelu) for _ in range(shape.layers))
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
        for number, layer in enumerate(self.layers, 1):
            hidden = layer(hidden, layout, wanted if number == self.shape.layers else None)
        return hidden.states

    def views(self, batch: TokenBatch, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Forward states (ends, width) and backward states (begins, width) of the lowest layers."""
        layers: Any = self.layers
        return self.directed_states(batch, ends, begins, layers)

    def two_streams(self, batch: TokenBatch, streams: Streams) -> Tensor:
        """The states of the query stream (rows, places, width)."""
        own = self.projection(self.embed(batch))
        first = self.projection(embed_queries(self, batch, streams))
        content, queries = Hidden(own, own), Hidden(first, first)
        layers: Any = self.layers
        for number, layer in enumerate(layers, 1):
            content, queries = layer.two_streams(
                content, queries, streams, number == self.shape.layers
            )
        return queries.states
